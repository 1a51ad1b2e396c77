"""What a turn renders: only what is new after the response it follows, or the whole conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tidemill_gateway import metrics
from tidemill_gateway.backends import Preamble
from tidemill_gateway.conversation import Node, Reading, ResentTurns
from tidemill_gateway.items import CallLedger, Entry, ModelOutput, ModelTurn, ParsedInput, RenderItem, parse_input
from tidemill_gateway.request import CreateRequest
from tidemill_gateway.tools import ToolSet


@dataclass(frozen=True, slots=True)
class Plan:
    """What a turn renders.

    Attributes:
        base: node whose tokens and render state go on; None when the conversation is rendered whole.
        preamble: instructions and tools.
        preamble_digest: names them.
        items: what is rendered after ``base``, its output first.
        reading: tools and call ids of the conversation with this turn's input.
        model_turns: turns that a model generated so far.
        broken: why a turn that follows a response is rendered whole all the same; empty when it is not.
    """

    base: Node | None
    preamble: Preamble
    preamble_digest: bytes
    items: tuple[RenderItem, ...]
    reading: Reading
    model_turns: int
    broken: str = ""


class Historian:
    """Plans turns. ``appends`` is False for a model whose every turn is rendered whole."""

    def __init__(self, resent: ResentTurns, *, model: str, appends: bool) -> None:
        self.resent = resent
        self.model = model
        self.appends = appends

    def plan(self, request: CreateRequest, tenant: str, node: Node | None) -> Plan:
        """Plan the turn that ``request`` asks for after ``node``. Raises TidemillError for what can't be read."""
        tools = ToolSet.parse(request.tools)
        instructions = request.instructions or ""
        preamble = Preamble(instructions, tools.tools)
        digest = preamble_digest(instructions, tools)
        if node is None:
            new = self._read(request.input, Reading(tools, CallLedger()), closing=request.generate)
            return self._whole(tenant, preamble, digest, list(new.entries), new, 0)
        if (broken := self._break(node, digest)) is None:
            return self._delta(request, tenant, node, preamble, digest, tools)
        entries, reading = self._reread(node, tools)
        new = self._read(request.input, reading, closing=request.generate)
        plan = self._whole(tenant, preamble, digest, [*entries, *new.entries], new, node.model_turns, broken)
        if broken:
            metrics.PREFIX_BREAKS.labels(broken).inc()
        return plan

    def _break(self, node: Node, digest: bytes) -> str | None:
        """None when ``node`` can be continued as it is; else why not, empty where that is the model's nature."""
        if node.chain is None:
            return "model"
        if node.preamble != digest:
            return "preamble"
        return None if self.appends else ""

    def _delta(
        self, request: CreateRequest, tenant: str, node: Node, preamble: Preamble, digest: bytes, tools: ToolSet
    ) -> Plan:
        reading = node.reading or self._reread(node, tools)[1]
        new = self._read(request.input, reading, closing=request.generate)
        output = [ModelOutput(node.output)] if node.generated else []
        items = (*output, *self._items(tenant, new.entries))
        turns = node.model_turns + _count_turns(new.entries)
        return Plan(node, preamble, digest, items, Reading(new.tools, new.calls), turns)

    def _whole(
        self,
        tenant: str,
        preamble: Preamble,
        digest: bytes,
        entries: Sequence[Entry | ModelOutput],
        new: ParsedInput,
        turns: int,
        broken: str = "",
    ) -> Plan:
        items = tuple(self._items(tenant, entries))
        turns += _count_turns(new.entries)
        return Plan(None, preamble, digest, items, Reading(new.tools, new.calls), turns, broken)

    def _reread(self, node: Node, tools: ToolSet) -> tuple[list[Entry | ModelOutput], Reading]:
        """A conversation's entries, tools and call ids, read anew under ``tools``."""
        entries: list[Entry | ModelOutput] = []
        reading = Reading(tools, CallLedger())
        for each in node.lineage():
            parsed = self._read(json.loads(each.items), reading, closing=each.generated)
            entries += parsed.entries
            emitted = json.loads(each.response).get("output", [])
            if each.chain is None:
                parsed = self._read(emitted, Reading(parsed.tools, parsed.calls), closing=False)
                entries += parsed.entries
                reading = Reading(parsed.tools, parsed.calls)
                continue
            if each.generated:
                entries.append(ModelOutput(each.output))
            reading = Reading(parsed.tools, parsed.calls.called(call_ids(emitted)))
        return entries, reading

    def _read(self, raw: str | Sequence[Mapping[str, Any]], reading: Reading, *, closing: bool) -> ParsedInput:
        return parse_input(raw, reading.tools, model=self.model, calls=reading.calls, closing=closing)

    def _items(self, tenant: str, entries: Iterable[Entry | ModelOutput]) -> list[RenderItem]:
        items: list[RenderItem] = []
        for entry in entries:
            if not isinstance(entry, ModelTurn):
                items.append(entry)
                continue
            packed = self.resent.get(tenant, entry.digest)
            metrics.RESENT.labels("no" if packed is None else "yes").inc()
            items += entry.items if packed is None else (ModelOutput(packed),)
        return items


def preamble_digest(instructions: str, tools: ToolSet) -> bytes:
    """16 bytes that name a conversation's instructions and tools."""
    return blake2b(tools.digest() + instructions.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def call_ids(output: Iterable[Mapping[str, Any]]) -> list[str]:
    """Call ids of output items, in order."""
    return [item["call_id"] for item in output if isinstance(item.get("call_id"), str)]


def _count_turns(entries: Iterable[Entry | ModelOutput]) -> int:
    return sum(isinstance(entry, ModelTurn) for entry in entries)
