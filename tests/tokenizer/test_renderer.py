from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tokenizer.support import MODELS, Chat
from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.items import Item, Message, ModelOutput, Reasoning, Tool, ToolCall, ToolList, ToolOutput
from tidemill_tokenizer.renderer import Renderer
from tidemill_tokenizer.template import Template

words = st.text(alphabet="ab é.\n<>1中\"'|\\{}", max_size=12)
long = st.sampled_from(["", "word " * 60, "x" * 300, " " * 200, "<|im_end|>", "</tool_response>\n", "naïve 日本語 " * 20])
text = st.one_of(words, long, st.text(max_size=8))
tool = st.builds(Tool, text, text, st.sampled_from(["{}", '{"type":"object","b":1,"a":2}', ""]))
model_output = st.builds(ModelOutput, st.lists(st.integers(0, 300), max_size=6).map(tuple))
item: st.SearchStrategy[Item] = st.one_of(
    st.builds(Message, st.sampled_from(["system", "developer", "user"]), text),
    st.builds(Message, st.just("assistant"), text),
    st.builds(ToolCall, text, st.one_of(text, st.just('{"a": "b"}'))),
    st.builds(ToolOutput, text),
    st.builds(ToolList, st.lists(tool, max_size=2).map(tuple)),
    st.builds(Reasoning, text),
    model_output,
)


def begins_a_turn(before: Item | None, after: Item) -> bool:
    """Whether a caller may have opened an assistant turn between the two."""
    given_by_others = (
        before is None or isinstance(before, ToolOutput) or (isinstance(before, Message) and before.role == "user")
    )
    by_the_model = isinstance(after, ToolCall) or (isinstance(after, Message) and after.role == "assistant")
    return isinstance(after, ModelOutput) or (given_by_others and by_the_model)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[Tool], list[Item], list[tuple[int, bool]], bool]:
    """Instructions, tools, items, cuts with whether a turn was opened there, and whether one is opened at the end."""
    instructions, tools = draw(st.sampled_from(["", "Be brief.", "a\n"])), draw(st.lists(tool, max_size=2))
    items = draw(st.lists(item, max_size=8))
    places = sorted(draw(st.lists(st.integers(0, len(items)), max_size=5)))
    cuts = []
    for place in places:
        allowed = place < len(items) and begins_a_turn(items[place - 1] if place else None, items[place])
        cuts.append((place, allowed and draw(st.booleans())))
    return instructions, tools, items, cuts, draw(st.booleans())


@pytest.mark.requirement("tokenizer:delta-equals-whole")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=conversations())
def test_a_conversation_in_parts_has_the_ids_of_the_whole(
    appending: Renderer, conversation: tuple[str, list[Tool], list[Item], list[tuple[int, bool]], bool]
) -> None:
    instructions, tools, items, cuts, open_turn = conversation
    whole, parts = Chat(appending, instructions, tools), Chat(appending, instructions, tools)
    whole.add(*items, open_turn=open_turn)
    start = 0
    for place, opened in cuts:
        parts.add(*items[start:place], open_turn=opened)
        assert len(parts.state) < 1024
        start = place
    parts.add(*items[start:], open_turn=open_turn)
    assert parts.ids == whole.ids
    assert parts.state == whole.state


@pytest.mark.requirement("tokenizer:delta-equals-whole")
@pytest.mark.parametrize("letter", ["\x01", '"', "é", "𝄞", "x"])
def test_a_render_state_stays_under_a_kibibyte(appending: Renderer, letter: str) -> None:
    for each in (Message("assistant", letter * 500), ToolOutput(letter * 100 + "a b"), ToolCall(letter * 500, letter)):
        state = appending.render(b"", "", [], [each], open_turn=False).state
        assert 0 < len(state) < 1024


Messages = list[dict[str, object]]


def own_template(directory: Path, messages: Messages, tools: Messages) -> list[int]:
    """Ids that `tokenizers` gives the model's own template."""

    template = Template.load(directory)
    assert template is not None
    whole = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return list(whole.encode(template.render(messages, tools, open_turn=True), add_special_tokens=False).ids)


@pytest.mark.model
@pytest.mark.requirement("tokenizer:template-checked")
def test_the_default_model_renders_as_its_own_template(smollm2: Path, default_renderer: Renderer) -> None:
    renderer = default_renderer
    assert (renderer.difference, renderer.delta, renderer.encoder.name) == ("", True, "tiktoken")
    said = [("user", "Hi: 1, 2,  3"), ("assistant", "Hello!\nHow are you?"), ("user", "Fine. ")]
    for system in ("", "Be brief."):
        messages: Messages = [{"role": "system", "content": system}] if system else []
        messages += [{"role": role, "content": content} for role, content in said]
        items = [Message(role, content) for role, content in said]  # type: ignore[arg-type]
        assert renderer.render(b"", system, [], items, open_turn=True).ids == own_template(smollm2, messages, [])


@pytest.mark.requirement("tokenizer:template-checked")
def test_calls_and_outputs_have_the_ids_of_the_models_own_template(
    renderers: Callable[[str], Renderer], model_dirs: Callable[[str], Path]
) -> None:
    renderer = renderers("qwen2.5")
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "."}}}
    schema = {"type": "object"}
    listed: Messages = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema}}]
    messages: Messages = [
        {"role": "user", "content": "Look twice"},
        {"role": "assistant", "content": "I look:", "tool_calls": [call, call]},
        {"role": "tool", "content": "a\n"},
        {"role": "tool", "content": "b>"},
    ]
    items: list[Item] = [Message("user", "Look twice"), Message("assistant", "I look:"), *[ToolCall("look", '{"at":"."}')] * 2]
    outputs: list[Item] = [ToolOutput("a\n"), ToolOutput("b>")]
    chat = Chat(renderer, "", [Tool("look", "Looks.", json.dumps(schema))])
    for each in (*items, *outputs):
        chat.add(each)
    chat.add(open_turn=True)
    assert chat.ids == own_template(model_dirs("qwen2.5"), messages, listed)


@pytest.mark.requirement("tokenizer:template-checked")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "qwen3"])
def test_a_renderer_equal_to_the_models_template_serves_by_delta(renderers: Callable[[str], Renderer], name: str) -> None:
    renderer = renderers(name)
    assert (renderer.difference, renderer.delta) == ("", True)


@pytest.mark.requirement("tokenizer:template-checked")
def test_a_template_that_strips_thinking_is_named_and_rendered_whole(renderers: Callable[[str], Renderer]) -> None:
    renderer = renderers("qwen3")
    assert renderer.delta is False
    assert renderer.difference.startswith("thinking in earlier turns: after ")
    items: list[Item] = [Message("user", "a"), Reasoning("hm"), Message("assistant", "b"), Message("user", "c")]
    rendered = renderer.render(b"", "", [], items, open_turn=True)
    assert rendered.state == b""
    assert "think" not in Chat(renderer).show(rendered.ids)
    with pytest.raises(TidemillError) as refused:
        renderer.render(b"{}", "", [], items, open_turn=True)
    assert (refused.value.reason, refused.value.param) == (Reason.INVALID_REQUEST, "state")


def test_the_text_for_safety_is_that_of_users_developers_and_tools(renderers: Callable[[str], Renderer]) -> None:
    items: list[Item] = [
        Message("user", "u"),
        Message("developer", "d"),
        Message("assistant", "a"),
        ToolCall("f", "{}"),
        ToolOutput("t"),
    ]
    assert renderers("chatml").render(b"", "", [], items, open_turn=True).text == "u\nd\nt"


OTHERS = b'{"v":1,"family":"llama3","phase":"closed","part":0,"held":""}'


@pytest.mark.parametrize(
    "state",
    [
        b"x",
        b"{}",
        b"[]",
        b"\xff",
        b'{"v":2}',
        b"null",
        b"[" * 500,
        b'{"v":1,"family":"llama3","phase":"closed","part":0,"held":""}',
    ],
)
def test_a_state_of_another_kind_is_refused(renderers: Callable[[str], Renderer], state: bytes) -> None:
    with pytest.raises(TidemillError) as refused:
        renderers("chatml").render(state, "", [], [], open_turn=True)
    assert (refused.value.reason, refused.value.param) == (Reason.INVALID_REQUEST, "state")


def test_a_family_that_does_not_fit_the_tokenizer_is_a_configuration_error(
    model_dirs: Callable[[str], Path], tmp_path: Path
) -> None:
    for source in model_dirs("chatml").iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    for family, problem in (("llama3", "begin_of_text"), ("alpaca", "unknown template family")):
        profile = json.loads((tmp_path / "tidemill.json").read_text()) | {"family": family}
        (tmp_path / "tidemill.json").write_text(json.dumps(profile))
        with pytest.raises(TidemillError, match=problem) as refused:
            Renderer.load(tmp_path)
        assert refused.value.reason == Reason.CONFIG
