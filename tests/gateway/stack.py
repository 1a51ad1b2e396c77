"""A gateway on free ports, with fakes around it, and a WebSocket client that reads whole turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import websockets
from websockets.asyncio.client import ClientConnection

from tests.support.fake_services import FakeServices, make_model_dir
from tidemill_common.keys import KeyRing
from tidemill_gateway.config import GatewaySettings
from tidemill_gateway.service import GatewayService

Event = dict[str, Any]
ENDINGS = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})


@dataclass
class Stack:
    """A running gateway.

    ``key`` is an API key of tenant ``default``, ``other_key`` one of tenant ``other``.
    """

    service: GatewayService
    fakes: FakeServices
    url: str
    key: str
    other_key: str
    directory: Path

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        """An HTTP client with a key."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    @asynccontextmanager
    async def socket(self, key: str | None = None, **headers: str) -> AsyncIterator[Socket]:
        """An open WebSocket."""
        url = self.url.replace("http://", "ws://") + "/v1/responses"
        sent = {
            "Authorization": f"Bearer {key or self.key}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        async with websockets.connect(url, additional_headers=sent, max_size=None, proxy=None) as connection:
            yield Socket(connection)


@dataclass
class Socket:
    """A WebSocket that speaks the Responses protocol."""

    connection: ClientConnection
    events: list[Event] = field(default_factory=list)

    async def send(self, **fields: Any) -> None:
        """Ask for a response."""
        await self.connection.send(json.dumps({"type": "response.create", "model": "fake", **fields}))

    async def event(self) -> Event:
        """The next event."""
        event: Event = json.loads(await self.connection.recv())
        self.events.append(event)
        return event

    async def until(self, *kinds: str) -> Event:
        """The next event of one of these types."""
        while True:
            event = await self.event()
            if event["type"] in kinds:
                return event

    async def turn(self, **fields: Any) -> list[Event]:
        """All events of one response."""
        await self.send(**fields)
        return await self.ending()

    async def ending(self) -> list[Event]:
        """Events until the running response ends."""
        events: list[Event] = []
        while not events or events[-1]["type"] not in ENDINGS:
            events.append(await self.event())
        return events


def text_of(response: Event) -> str:
    """Text of a response object's messages."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


@asynccontextmanager
async def running(directory: Path, workers: int = 1, **settings: Any) -> AsyncIterator[Stack]:
    """A gateway and its fakes for as long as the block lasts."""
    fakes = FakeServices()
    await fakes.start(workers)
    ring = KeyRing()
    key, _ = ring.add("default")
    other_key, _ = ring.add("other")
    ring.save(directory / "keys.json")
    try:
        async with serving(make_settings(directory, fakes, **settings)) as (service, url):
            yield Stack(service, fakes, url, key, other_key, directory)
    finally:
        await fakes.stop()


def make_settings(directory: Path, fakes: FakeServices, **settings: Any) -> GatewaySettings:
    """Settings of a gateway whose files lie in ``directory``."""
    given: dict[str, Any] = {
        "model_dir": make_model_dir(directory / "model"),
        "tokenizer": fakes.address,
        "safety": fakes.address,
        "router": fakes.address,
        "http_port": 0,
        "keys_file": directory / "keys.json",
        "digest_secret_file": directory / "secret",
        "store_file": directory / "responses.sqlite",
        "recover_seconds": 0.5,
        "drain_seconds": 5,
    }
    return GatewaySettings(**{**given, **settings})


@asynccontextmanager
async def serving(settings: GatewaySettings) -> AsyncIterator[tuple[GatewayService, str]]:
    """The service, started as ``server.run`` would, but for its own RPCs."""
    service = GatewayService(settings)
    try:
        ready = await service.start("")
        yield service, str(ready["url"])
    finally:
        await service.drain()
        await service.stop()
