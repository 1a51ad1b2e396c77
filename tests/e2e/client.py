"""A client of the Responses API that keeps every event of a turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.stack import Stack

Event = dict[str, Any]
ENDINGS = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})
EVENT_SECONDS = 180.0


@dataclass(frozen=True)
class Turn:
    """A turn that ended, by its events."""

    events: Sequence[Event]

    @property
    def ending(self) -> str:
        """Type of the last event."""
        return str(self.events[-1]["type"])

    @property
    def answered(self) -> bool:
        """Whether it ended well, if perhaps at its limit."""
        return self.ending in ("response.completed", "response.incomplete")

    @property
    def response(self) -> Event:
        """The response object."""
        return dict(self.events[-1]["response"])

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.response["id"])

    @property
    def error(self) -> Event:
        """What went wrong, in a failed response or an error event."""
        last = self.events[-1]
        return dict(last["error"] if self.ending == "error" else last["response"]["error"])

    @property
    def text(self) -> str:
        """Text of the deltas, which is what a person sees."""
        return "".join(each["delta"] for each in self.events if each["type"] == "response.output_text.delta")

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt."""
        return int(self.response["usage"]["input_tokens"])

    @property
    def tokens(self) -> int:
        """Tokens of the conversation up to the turn's end."""
        return self.input_tokens + int(self.response["usage"]["output_tokens"])

    @property
    def cached(self) -> int:
        """Tokens of the prompt that nobody computed for this turn."""
        return int(self.response["usage"]["input_tokens_details"]["cached_tokens"])

    @property
    def hops(self) -> dict[str, int]:
        """Process ids by service."""
        hops = [hop for each in self.events if each["type"] == "response.metadata" for hop in each["hops"]]
        return {hop["service"]: hop["pid"] for hop in hops}


@dataclass(frozen=True)
class Client:
    """A WebSocket."""

    connection: ClientConnection

    async def ask(self, text: str | list[Event], **fields: Any) -> None:
        """Ask for a response."""
        await self.connection.send(json.dumps({"type": "response.create", "model": "smollm2", "input": text, **fields}))

    async def event(self) -> Event:
        """The next event."""
        async with asyncio.timeout(EVENT_SECONDS):
            return dict(json.loads(await self.connection.recv()))

    async def until_text(self) -> list[Event]:
        """Events up to the first piece of text."""
        return await self._until(lambda kind: kind == "response.output_text.delta")

    async def rest(self, before: Sequence[Event] = ()) -> Turn:
        """The running turn's end; ``before`` are its events so far."""
        return Turn([*before, *await self._until(ENDINGS.__contains__)])

    async def turn(self, text: str | list[Event], **fields: Any) -> Turn:
        """A whole turn."""
        await self.ask(text, **fields)
        return await self.rest()

    async def _until(self, last: Any) -> list[Event]:
        events: list[Event] = []
        while not events or not last(events[-1]["type"]):
            events.append(await self.event())
        return events


@asynccontextmanager
async def websocket(stack: Stack, key: str | None = None) -> AsyncIterator[Client]:
    """An open WebSocket that asks for hops."""
    headers = {"Authorization": f"Bearer {key or stack.key}", "x-tidemill-hops": "1"}
    url = stack.file.url.replace("http://", "ws://") + "/v1/responses"
    async with connect(url, additional_headers=headers, max_size=None, proxy=None, compression=None) as connection:
        yield Client(connection)


def http(stack: Stack, key: str | None = None) -> httpx.AsyncClient:
    """An HTTP client that asks for hops."""
    headers = {"Authorization": f"Bearer {key or stack.key}", "x-tidemill-hops": "1"}
    return httpx.AsyncClient(base_url=stack.file.url, headers=headers, timeout=EVENT_SECONDS, trust_env=False)


async def sse_turn(stack: Stack, text: str | list[Event], **fields: Any) -> Turn:
    """A whole turn over server-sent events."""
    body = {"model": "smollm2", "input": text, "stream": True, **fields}
    async with http(stack) as client, client.stream("POST", "/v1/responses", json=body) as reply:
        reply.raise_for_status()
        lines = [line async for line in reply.aiter_lines()]
    return Turn([json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")])
