"""Conversations, one node per response: what it added, linked to the response before it; bounded in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tidemill_gateway.chain import Chain
from tidemill_gateway.items import CallLedger
from tidemill_gateway.tools import ToolSet

NODE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Reading:
    """Tools and call ids of a conversation up to a node, as its items say."""

    tools: ToolSet
    calls: CallLedger


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A conversation up to and with one response.

    Attributes:
        response_id: the response.
        tenant: whose it is.
        parent: node of the response that it continues.
        chain: tokens up to the end of its output; None when they belong to another model and can't be continued.
        output: packed ids that were sampled; the end of ``chain``.
        state: render state before the output.
        preamble: digest of instructions and tools.
        text_tail: end of the conversation's text, context of the next safety check.
        items: input items, JSON.
        response: the response object, JSON.
        model_turns: turns that the model generated, up to and with this one.
        session: id of the conversation's first response, which keeps its turns together.
        stored: whether it may be read back by its id.
        reading: what its items say; None until they are read again after it came from the store.
    """

    response_id: str
    tenant: str
    parent: Node | None = field(repr=False)
    chain: Chain | None = field(repr=False)
    output: bytes = field(repr=False)
    state: bytes = field(repr=False)
    preamble: bytes
    text_tail: str = field(repr=False)
    items: str = field(repr=False)
    response: str = field(repr=False)
    model_turns: int
    session: str
    stored: bool
    reading: Reading | None = field(default=None, repr=False)

    @property
    def generated(self) -> bool:
        """False for a prompt that was computed ahead and not answered."""
        return bool(self.output)

    def lineage(self) -> list[Node]:
        """This node and its ancestors, the oldest first."""
        nodes: list[Node] = []
        here: Node | None = self
        while here is not None:
            nodes.append(here)
            here = here.parent
        return nodes[::-1]

    @property
    def size(self) -> int:
        """Bytes that it adds to what its parent holds."""
        held = len(self.items) + len(self.response) + len(self.text_tail) + len(self.state) + 2 * len(self.output)
        return NODE_BYTES + held + sum(segment.held_bytes for segment in self._own()) + self._tool_bytes()

    def _own(self) -> Iterator[Chain]:
        shared = self.parent.chain if self.parent else None
        for segment in self.chain.segments() if self.chain else ():
            if segment is shared:
                return
            yield segment

    def _tool_bytes(self) -> int:
        if self.reading is None or (self.parent and self.parent.reading and self.parent.reading.tools is self.reading.tools):
            return 0
        return sum(len(tool.parameters_json) + len(tool.description) for tool in self.reading.tools.tools)


@dataclass(slots=True)
class _Slot:
    node: Node
    children: int = 0
    deleted: bool = False


class Conversations:
    """Nodes in memory, at most ``limit`` bytes of them.

    The conversation used longest ago shrinks first, from its latest response on; a response that another one in memory
    continues is never dropped. The newest node stays, however large.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._leaves: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def conversations(self) -> int:
        """Conversations, branches counted each."""
        return len(self._leaves)

    def add(self, node: Node) -> None:
        """Hold ``node`` and its ancestors."""
        missing: list[Node] = []
        here: Node | None = node
        while here is not None and _key(here) not in self._slots:
            missing.append(here)
            here = here.parent
        for each in reversed(missing):
            self._insert(each)
        self._evict(keep=_key(node))

    def get(self, tenant: str, response_id: str) -> Node | None:
        """A tenant's node, or None."""
        key = (tenant, response_id)
        slot = self._slots.get(key)
        if slot is None or slot.deleted:
            return None
        if key in self._leaves:
            self._leaves.move_to_end(key)
        return slot.node

    def delete(self, tenant: str, response_id: str) -> bool:
        """Make a tenant's response unreachable; responses that continue it go on. False when there is none."""
        slot = self._slots.get((tenant, response_id))
        if slot is None or slot.deleted:
            return False
        slot.deleted = True
        self._drop_deleted((tenant, response_id))
        return True

    def _insert(self, node: Node) -> None:
        key = _key(node)
        self._slots[key] = _Slot(node)
        self._leaves[key] = None
        self.bytes += node.size
        if node.parent is not None:
            self._slots[_key(node.parent)].children += 1
            self._leaves.pop(_key(node.parent), None)

    def _evict(self, keep: tuple[str, str]) -> None:
        while self.bytes > self.limit:
            oldest = next(iter(self._leaves))
            if oldest == keep:
                return
            self._remove(oldest)

    def _remove(self, key: tuple[str, str]) -> None:
        slot = self._slots.pop(key)
        del self._leaves[key]
        self.bytes -= slot.node.size
        if slot.node.parent is None:
            return
        parent = _key(slot.node.parent)
        self._slots[parent].children -= 1
        if self._slots[parent].children == 0:
            self._leaves[parent] = None
            self._leaves.move_to_end(parent, last=False)
            self._drop_deleted(parent)

    def _drop_deleted(self, key: tuple[str, str]) -> None:
        slot = self._slots.get(key)
        if slot is not None and slot.deleted and slot.children == 0:
            self._remove(key)


def _key(node: Node) -> tuple[str, str]:
    return (node.tenant, node.response_id)


class ResentTurns:
    """Sampled ids of the turns that the gateway emitted, found by tenant and content; at most ``limit`` bytes of ids."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._ids: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def add(self, tenant: str, digest: bytes, packed: bytes) -> None:
        """Remember a turn; the latest of equal content counts."""
        self.bytes -= self._cost(self._ids.pop((tenant, digest), None))
        self._ids[(tenant, digest)] = packed
        self.bytes += self._cost(packed)
        while self.bytes > self.limit and self._ids:
            self.bytes -= self._cost(self._ids.popitem(last=False)[1])

    def get(self, tenant: str, digest: bytes) -> bytes | None:
        """Packed ids of a turn, or None."""
        found = self._ids.get((tenant, digest))
        if found is not None:
            self._ids.move_to_end((tenant, digest))
        return found

    @staticmethod
    def _cost(packed: bytes | None) -> int:
        return 0 if packed is None else len(packed) + 160
