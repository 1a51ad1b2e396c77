from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tokenizer.support import Chat
from tidemill_common.errors import TidemillError
from tidemill_tokenizer.items import Message, ModelOutput, Tool, ToolCall, ToolList, ToolOutput
from tidemill_tokenizer.renderer import Renderer

BOS, END = "<|begin_of_text|>", "<|eot_id|>"
ASK = Message("user", " list files\n")
CALL = ToolCall("f", '{"a": "b"}')
CALLED = '{"name": "f", "parameters": {"a": "b"}}'

pytestmark = pytest.mark.requirement("tokenizer:glue")


def header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def test_the_models_preamble_stands_before_the_system_text(renderers: Callable[[str], Renderer]) -> None:
    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    assert Chat(renderers("llama3.1"), " Be brief. ").add() == f"{BOS}{header('system')}{dates}Be brief.{END}"
    assert (
        Chat(renderers("llama3.1")).add(ASK).startswith(f"{BOS}{header('system')}{dates}{END}{header('user')}list files{END}")
    )
    assert Chat(renderers("llama3")).add(ASK) == f"{BOS}{header('user')}list files{END}"


def test_tools_stand_in_the_system_message(renderers: Callable[[str], Renderer]) -> None:
    shown = Chat(renderers("llama3.1"), "Be brief.", [Tool("f")]).add(ASK)
    assert shown.startswith(f"{BOS}{header('system')}Environment: ipython\nCutting")
    assert '        "name": "f",\n' in shown
    later = Chat(renderers("llama3.1"), "Be brief.").add(ASK, ToolList((Tool("g"),)))
    assert later.endswith(f"}}\n\n{END}")


def test_each_call_is_a_turn(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("llama3.1"), "Be brief.")
    shown = chat.add(ASK, Message("assistant", "I look."), CALL, CALL, ToolOutput('say "x"'), open_turn=True)
    turn = header("assistant")
    assert shown.endswith(
        f'{turn}I look.{END}{turn}{CALLED}{END}{turn}{CALLED}{END}{header("ipython")}"say \\"x\\""{END}{turn}'
    )


def test_an_end_of_message_ends_a_sampled_turn_too(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("llama3.1"), "Be brief.")
    chat.add(ASK, open_turn=True)
    chat.add(ModelOutput((*chat.sampled(CALLED, end=False), chat.renderer.encoder.special_ids["<|eom_id|>"])))
    assert chat.add(ToolOutput("x")) == f'{header("ipython")}"x"{END}'


def test_a_turn_that_is_cut_gets_its_end(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("llama3"))
    chat.add(ASK, open_turn=True)
    chat.add(ModelOutput(chat.sampled("Su", end=False)))
    assert chat.add(ASK) == f"{END}{header('user')}list files{END}"


def test_output_is_one_call_or_text(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("llama3.1"))
    assert chat.show(chat.renderer.render_output([CALL])) == CALLED + END
    with pytest.raises(TidemillError, match="into a turn after"):
        chat.renderer.render_output([Message("assistant", "I look."), CALL])
