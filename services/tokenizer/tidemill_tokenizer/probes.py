"""Learns a family's options from the model's own template and compares the two on probe conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidemill_common.errors import TidemillError
from tidemill_tokenizer.families import Family, Options
from tidemill_tokenizer.items import Item, Message, Reasoning, Tool, ToolCall, ToolOutput
from tidemill_tokenizer.template import Template

_SYSTEM = "You sort shells."
_TOOLS = (
    Tool("look", "Look at a beach.", '{"type": "object", "properties": {"beach": {"type": "string"}}, "required": ["beach"]}'),
    Tool("count", "Count shells.", '{"type": "object", "properties": {}}'),
)


@dataclass(frozen=True, slots=True)
class Probe:
    """A conversation that ends where an assistant turn begins."""

    name: str
    items: tuple[Item, ...]
    instructions: str = ""
    tools: tuple[Tool, ...] = ()


Render = Callable[[Probe], str]


def learn(template: Template | None, family: type[Family]) -> Options:
    """What the model's template says of its system text and of thinking."""
    if template is None:
        return Options()
    marker = "\x02"
    user = {"role": "user", "content": "Hello"}
    preamble = (_system_block(template, family, [{"role": "system", "content": marker}, user]) or marker).partition(marker)[0]
    default = _system_block(template, family, [user])
    default = default if default is None else default.removeprefix(preamble)
    return Options(default_system=default, preamble=preamble, thinking="<think>" in template.source)


def _system_block(template: Template, family: type[Family], messages: Sequence[dict[str, str]]) -> str | None:
    try:
        rendered = template.render(messages, [], open_turn=True)
    except TidemillError:
        return None
    _, found, rest = rendered.partition(family.header_text("system"))
    return rest.partition(family.end_of_turn)[0] if found else None


def difference(template: Template | None, ours: Render, theirs: Render, thinking: bool, several_calls: bool) -> str:
    """Where the renderer and the model's own template differ, in words; empty where they are equal on every probe."""
    if template is None:
        return "the model has no chat template of its own"
    for probe in probes("tools" in template.source, thinking, several_calls):
        try:
            expected = theirs(probe)
        except TidemillError as error:
            return f"{probe.name}: {error.message}"
        if (rendered := ours(probe)) != expected:
            return f"{probe.name}: {_first_difference(rendered, expected)}"
    return ""


def probes(tools: bool, thinking: bool, several_calls: bool) -> Iterator[Probe]:
    """Conversations that a model of these abilities must be rendered equally on."""
    hello, answer, thanks = (
        Message("user", "Hello"),
        Message("assistant", "Hi.\nHow are you?"),
        Message("user", "Fine: 12 thanks"),
    )
    yield Probe("a user's message", (hello,))
    yield Probe("a system message", (hello,), _SYSTEM)
    yield Probe("several turns", (hello, answer, thanks, answer, hello), _SYSTEM)
    yield Probe("several turns without a system message", (hello, answer, thanks))
    if thinking:
        thought = (Reasoning("Polite."), answer)
        yield Probe("thinking in earlier turns", (hello, *thought, thanks, *thought, hello))
    if tools:
        yield from _tool_probes(hello, answer, thanks, several_calls)


def _tool_probes(hello: Item, answer: Item, thanks: Item, several_calls: bool) -> Iterator[Probe]:
    look, count = ToolCall("look", '{"beach": "North \\"Bay\\" é"}'), ToolCall("count", "{}")
    saw, counted = ToolOutput("3 shells\n{}"), ToolOutput("3")
    yield Probe("tools", (hello,), tools=_TOOLS)
    yield Probe("tools and a system message", (hello,), _SYSTEM, _TOOLS)
    yield Probe("a tool call", (hello, look, saw, answer, thanks), _SYSTEM, _TOOLS)
    yield Probe("the end of a tool's output", (hello, look, saw), _SYSTEM, _TOOLS)
    if several_calls:
        yield Probe("calls in one turn", (hello, look, count, saw, counted, answer, thanks), tools=_TOOLS)
        yield Probe("text before a call", (hello, answer, look, saw, answer, thanks), tools=_TOOLS)


def _first_difference(ours: str, theirs: str) -> str:
    shorter = min(len(ours), len(theirs))
    at = next((place for place in range(shorter) if ours[place] != theirs[place]), shorter)
    start = max(0, at - 20)
    return f"after {ours[start:at]!r} the renderer has {ours[at : at + 60]!r}, the model's template {theirs[at : at + 60]!r}"
