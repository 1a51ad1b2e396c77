"""Rendering a whole conversation through the model's own template, for models whose template is not append-only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill_common.vocabulary import Vocabulary
from tidemill_tokenizer.canonical import arguments, functions, scalar
from tidemill_tokenizer.families import Family
from tidemill_tokenizer.items import Item, Message, ModelOutput, Reasoning, Tool, ToolCall, ToolList, ToolOutput
from tidemill_tokenizer.template import Template
from tidemill_tokenizer.writer import Piece, Writer

_MARK = "\ufdd0"
_KEPT, _BROKEN = _MARK + "0", _MARK + "1"


class Shield:
    """Keeps the names of added tokens in user text apart from those that the template writes.

    A covered name is broken after its first character by a mark, which is a Unicode noncharacter and "1"; the noncharacter
    itself in a text becomes itself and "0". Both are undone after the template ran.
    """

    def __init__(self, specials: Mapping[str, int]) -> None:
        self.specials = specials
        self._names = re.compile("|".join(map(re.escape, sorted(specials, key=len, reverse=True))) or "(?!)")

    def cover(self, text: str) -> str:
        """``text`` in which no name stands."""
        text = scalar(text).replace(_MARK, _KEPT)
        return self._names.sub(lambda found: found[0][0] + _BROKEN + found[0][1:], text)

    def cover_all(self, value: Any) -> Any:
        """A JSON value with every string in it covered."""
        match value:
            case str():
                return self.cover(value)
            case dict():
                return {self.cover(key): self.cover_all(each) for key, each in value.items()}
            case list():
                return [self.cover_all(each) for each in value]
        return value

    def pieces(self, rendered: str) -> list[Piece]:
        """Pieces of a template's output: names that still stand are tokens, covered ones are text again."""
        writer = Writer(self.specials)
        writer.glue(rendered)
        writer.flush()
        return [_uncovered(piece) if isinstance(piece, str) else piece for piece in writer.pieces]


def _uncovered(text: str) -> str:
    return text.replace(_BROKEN, "").replace(_KEPT, _MARK)


class WholeRenderer:
    """Items to pieces by the model's own template."""

    def __init__(self, template: Template, family: Family, vocabulary: Vocabulary, closers: frozenset[int]) -> None:
        """``closers`` are the ids that end a turn; a sampled turn's last one is left to the template."""
        self.template = template
        self.family = family
        self.vocabulary = vocabulary
        self.closers = closers
        self._shield = Shield(vocabulary.special_ids)
        self._added = {token: text for text, token in vocabulary.special_ids.items()}

    def render(self, instructions: str, tools: Sequence[Tool], items: Sequence[Item], open_turn: bool) -> list[Piece]:
        """Pieces of the whole conversation. Raises TidemillError(INVALID_REQUEST) where the template refuses it."""
        cover = self._shield.cover
        messages: list[dict[str, Any]] = [{"role": "system", "content": cover(instructions)}] if instructions else []
        for item in items:
            self._append(messages, item)
        rendered = self.template.render(messages, self._shield.cover_all(functions(tools)), open_turn)
        return self._shield.pieces(rendered)

    def _append(self, messages: list[dict[str, Any]], item: Item) -> None:
        cover = self._shield.cover
        match item:
            case Message("assistant", text):
                self._turn(messages, "content")["content"] = cover(text)
            case Reasoning(text):
                if self.family.options.thinking:
                    self._turn(messages, "reasoning_content")["reasoning_content"] = cover(text)
            case ToolCall(name, text):
                function = {"name": cover(name), "arguments": self._shield.cover_all(arguments(text))}
                calls = self._turn(messages, "tool_calls").setdefault("tool_calls", [])
                calls.append({"type": "function", "function": function})
            case Message(role, text):
                messages.append({"role": "system" if role == "developer" else role, "content": cover(text)})
            case ToolOutput(output):
                messages.append({"role": "tool", "content": cover(output)})
            case ToolList(tools):
                messages.append({"role": "system", "content": cover(self._added_tools(tools))})
            case ModelOutput(ids):
                messages.append({"role": "assistant", "content": self._sampled(ids), "sampled": True})

    def _turn(self, messages: list[dict[str, Any]], key: str) -> dict[str, Any]:
        """The message that takes a part of an assistant turn: the last one while parts stand in order, else a new one."""
        order = ["reasoning_content", "content", "tool_calls"]
        last = messages[-1] if messages else {}
        taken = [part for part in order if last.get(part)]
        free = not taken or order.index(key) > order.index(taken[-1]) or (key == taken[-1] == "tool_calls")
        shared = self.family.calls_share_turn or key != "tool_calls"
        if last.get("role") != "assistant" or last.get("sampled") or not (free and shared):
            messages.append({"role": "assistant", "content": ""})
        return messages[-1]

    def _sampled(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, in which added tokens stand by name and stay tokens."""
        ids = ids[:-1] if ids and ids[-1] in self.closers else ids
        parts: list[str] = []
        plain: list[int] = []
        for token in [*ids, -1]:
            if token >= 0 and token not in self._added:
                plain.append(token)
                continue
            parts += [self._shield.cover(self._decode(plain)), self._added.get(token, "")]
            plain = []
        return "".join(parts)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.vocabulary.decode(ids).decode("utf-8", "replace")

    def _added_tools(self, tools: Sequence[Tool]) -> str:
        writer = Writer({})
        self.family.added_tools(writer, tools)
        return writer.pending
