"""Responses that turns can follow and clients can read: those in memory, then those in the store."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Final

from tidemill_common import telemetry
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.chain import Chain
from tidemill_gateway.conversation import Conversations, Node
from tidemill_gateway.store import ResponseStore, StoredResponse

log = logging.getLogger(__name__)

STORE_SECONDS: Final = 10.0


class Responses:
    """Every tenant's responses. ``empty`` gives the empty chain of a tenant."""

    def __init__(self, memory: Conversations, store: ResponseStore, fingerprint: str, empty: Callable[[str], Chain]) -> None:
        self.memory = memory
        self.store = store
        self.fingerprint = fingerprint
        self.empty = empty

    async def find(self, tenant: str, response_id: str, last: Node | None) -> Node:
        """The node that a turn follows: the connection's ``last`` one, or one of the tenant's.

        Raises TidemillError(PREVIOUS_RESPONSE_NOT_FOUND).
        """
        if last is not None and (last.tenant, last.response_id) == (tenant, response_id):
            return last
        node = self.memory.get(tenant, response_id) or await self._restore(tenant, response_id)
        if node is None:
            what = f"Previous response with id {response_id!r} not found."
            raise TidemillError(Reason.PREVIOUS_RESPONSE_NOT_FOUND, what, "previous_response_id")
        return node

    async def keep(self, node: Node, created: float) -> None:
        """Hold a node, and have it stored where its request allows that."""
        self.memory.add(node)
        if not node.stored:
            return
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self.store.put(self._row(node, created))
        except TimeoutError:
            telemetry.ERRORS.labels("gateway", Reason.UNAVAILABLE).inc()
            log.error("%s was not stored: the store has not written for %g s", node.response_id, STORE_SECONDS)

    async def read(self, tenant: str, response_id: str) -> dict[str, Any]:
        """A stored response object. Raises TidemillError(NOT_FOUND)."""
        row = await self.store.get(tenant, response_id)
        if row is None:
            raise _unknown(response_id)
        response: dict[str, Any] = json.loads(row.response)
        return response

    async def delete(self, tenant: str, response_id: str) -> None:
        """Forget a response; those that follow it go on. Raises TidemillError(NOT_FOUND)."""
        in_memory = self.memory.delete(tenant, response_id)
        if not await self.store.delete(tenant, response_id) and not in_memory:
            raise _unknown(response_id)

    async def _restore(self, tenant: str, response_id: str) -> Node | None:
        node: Node | None = None
        for row in await self.store.chain(tenant, response_id):
            node = self._node(row, node)
        if node is not None:
            self.memory.add(node)
        return node

    def _node(self, row: StoredResponse, parent: Node | None) -> Node:
        known = self.memory.get(row.tenant, row.id)
        if known is not None:
            return known
        return Node(
            response_id=row.id,
            tenant=row.tenant,
            parent=parent,
            chain=self._chain(row, parent),
            output=row.packed[len(row.packed) - row.output_bytes :],
            state=row.state,
            preamble=row.preamble,
            text_tail=row.text_tail,
            items=row.items,
            response=row.response,
            model_turns=row.model_turns,
            session=parent.session if parent else row.id,
            stored=True,
        )

    def _chain(self, row: StoredResponse, parent: Node | None) -> Chain | None:
        """Tokens of a row; None when they are another model's."""
        before = self.empty(row.tenant) if row.start == 0 else parent.chain if parent else None
        if row.fingerprint != self.fingerprint or before is None or before.length != row.start:
            return None
        prompt_bytes = len(row.packed) - row.output_bytes
        return before.extend(row.packed[:prompt_bytes]).extend(row.packed[prompt_bytes:])

    def _row(self, node: Node, created: float) -> StoredResponse:
        """A node and what of its ancestors is not stored, after the nearest one that is."""
        unstored, ancestor = _unstored(node)
        start = _shared_tokens(node, ancestor)
        return StoredResponse(
            id=node.response_id,
            tenant=node.tenant,
            parent=ancestor.response_id if ancestor else None,
            fingerprint=self.fingerprint if node.chain else "",
            created=created,
            start=start,
            packed=node.chain.packed_after(start) if node.chain else b"",
            output_bytes=len(node.output),
            state=node.state,
            preamble=node.preamble,
            model_turns=node.model_turns,
            text_tail=node.text_tail,
            items=_joined_items(unstored, node),
            response=node.response,
        )


def _unknown(response_id: str) -> TidemillError:
    return TidemillError(Reason.NOT_FOUND, f"Response with id {response_id!r} not found.", "response_id")


def _unstored(node: Node) -> tuple[list[Node], Node | None]:
    """Ancestors up to the nearest stored one, the oldest first, and that one."""
    between: list[Node] = []
    here = node.parent
    while here is not None and not here.stored:
        between.append(here)
        here = here.parent
    return between[::-1], here


def _shared_tokens(node: Node, ancestor: Node | None) -> int:
    """Tokens that ``node`` has in common with ``ancestor``, whose end they reach; 0 when it was rendered whole since."""
    if node.chain is None or ancestor is None or ancestor.chain is None:
        return 0
    shared = any(segment is ancestor.chain for segment in node.chain.segments())
    return ancestor.chain.length if shared else 0


def _joined_items(before: list[Node], node: Node) -> str:
    """Input items of ``node`` after all items of ``before``, which then are its input."""
    if not before:
        return node.items
    items: list[Any] = []
    for each in before:
        items += [*_as_items(json.loads(each.items)), *json.loads(each.response).get("output", [])]
    return json.dumps([*items, *_as_items(json.loads(node.items))], ensure_ascii=False, separators=(",", ":"))


def _as_items(given: str | list[Any]) -> list[Any]:
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
