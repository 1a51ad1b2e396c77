from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tokenizer import templates
from tests.tokenizer.support import Chat
from tidemill_tokenizer.items import Message, ModelOutput, Reasoning, ToolCall, ToolOutput
from tidemill_tokenizer.renderer import Renderer

START, END, HEADER = "<|im_start|>", "<|im_end|>\n", "<|im_start|>assistant\n"
ASK = Message("user", "list files")
TOLD = "<tool_response>\nb\n</tool_response>"

pytestmark = pytest.mark.requirement("tokenizer:glue")


def test_outputs_in_a_row_share_one_message_of_the_user(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("qwen2.5"), "Be brief.")
    chat.add(ASK, ToolCall("f", "{}"))
    whole = chat.add(ToolOutput("b"), ToolOutput("b"), ASK)
    assert whole.endswith(f"{START}user\n{TOLD}\n{TOLD}{END}{START}user\nlist files{END}")


def test_outputs_that_come_one_by_one_share_it_too(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("qwen2.5"), "Be brief.")
    chat.add(ASK, ToolCall("f", "{}"))
    parts = [chat.add(ToolOutput("b")), chat.add(ToolOutput("b")), chat.add(open_turn=True)]
    assert "".join(parts).endswith(f"{START}user\n{TOLD}\n{TOLD}{END}{HEADER}")


def test_sampled_ids_after_outputs_close_their_message(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("qwen2.5"))
    assert chat.add(ASK, ToolOutput("b"), ModelOutput(chat.sampled("ok", end=True))).endswith(
        f"{TOLD}{END}{HEADER}ok<|im_end|>"
    )


def test_the_default_system_text_is_the_models_own(renderers: Callable[[str], Renderer]) -> None:
    assert Chat(renderers("qwen2.5")).add(ASK).startswith(f"{START}system\n{templates.SYSTEM_QWEN25}{END}")
    assert Chat(renderers("thinking")).add(ASK) == f"{START}user\nlist files{END}"


def test_markup_that_is_a_token_of_the_model_is_written_as_that_token(renderers: Callable[[str], Renderer]) -> None:
    renderer = renderers("qwen2.5")
    ids = renderer.render_output([ToolCall("f", '{"x": "<tool_call>"}')])
    assert ids.count(renderer.encoder.special_ids["<tool_call>"]) == 1


def test_thinking_stands_before_text_and_calls(renderers: Callable[[str], Renderer]) -> None:
    chat = Chat(renderers("thinking"), "Be brief.")
    shown = chat.add(ASK, Reasoning("\nhm\n"), Message("assistant", "Hi"), ToolCall("f", "{}"), open_turn=True)
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert shown.endswith(f"{HEADER}<think>\nhm\n</think>\n\nHi\n{call}{END}{HEADER}")
    assert chat.show(chat.renderer.render_output([Reasoning("hm"), ToolCall("f", "{}")])) == (
        f"<think>\nhm\n</think>\n\n{call}<|im_end|>"
    )
