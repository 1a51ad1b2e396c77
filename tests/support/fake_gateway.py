"""A gateway that plays scripts: each request gets the next script's frames, and everything received is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

Frame = dict[str, Any]


class Act(Enum):
    """What a script does other than sending a frame."""

    DROP = "cut the connection without a close frame"
    HANG = "send nothing more until the client goes away"


Script = Sequence[Frame | Act]


def text_item(text: str) -> Frame:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call_item(name: str, arguments: dict[str, Any], call_id: str = "call_1") -> Frame:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def done(item: Frame) -> Frame:
    return {"type": "response.output_item.done", "item": item}


def delta(text: str) -> Frame:
    return {"type": "response.output_text.delta", "delta": text}


def completed(response_id: str, inputs: int = 10, cached: int = 4, outputs: int = 3) -> Frame:
    usage = {"input_tokens": inputs, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": outputs}
    return {"type": "response.completed", "response": {"id": response_id, "usage": usage}}


def failed(code: str, message: str) -> Frame:
    return {"type": "response.failed", "response": {"id": "resp_x", "error": {"code": code, "message": message}}}


def error(code: str, message: str = "no", status: int = 400) -> Frame:
    return {"type": "error", "status": status, "error": {"type": "invalid_request_error", "code": code, "message": message}}


def says(text: str, response_id: str) -> Script:
    return [delta(text), done(text_item(text)), completed(response_id)]


def calls(response_id: str, *items: Frame) -> Script:
    return [*(done(item) for item in items), completed(response_id)]


@dataclass
class FakeGateway:
    """What the scripts are, and what came.

    Attributes:
        scripts: one per request, in order.
        refusals: HTTP statuses that the next handshakes get.
        model: entry of /v1/models.
        requests: ``response.create`` frames received.
        headers: headers of each handshake.
        hung: set when a script hangs.
        left: set when a client left a script that hung.
    """

    scripts: list[Script]
    refusals: list[int] = field(default_factory=list)
    model: Frame = field(default_factory=lambda: {"id": "fake", "object": "model", "tidemill": {"context_length": 8192}})
    requests: list[Frame] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    @property
    def connections(self) -> int:
        return len(self.headers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FakeGateway]:
        async with serve(self._serve, "127.0.0.1", 0, process_request=self._handshake) as server:
            self.url = f"http://127.0.0.1:{_port(server)}"
            yield self

    def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/v1/models":
            if "Bearer" not in request.headers.get("Authorization", ""):
                body = {"error": {"code": "invalid_api_key", "message": "no API key was sent", "type": "x"}}
                return _json(connection, HTTPStatus.UNAUTHORIZED, body)
            return _json(connection, HTTPStatus.OK, {"object": "list", "data": [self.model], "models": []})
        if self.refusals:
            return _json(connection, HTTPStatus(self.refusals.pop(0)), {"error": {"code": "", "message": "refused"}})
        self.headers.append(dict(request.headers.raw_items()))
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        async for text in connection:
            self.requests.append(json.loads(text))
            for step in self.scripts.pop(0):
                if step is Act.DROP:
                    connection.transport.abort()
                    return
                if step is Act.HANG:
                    self.hung.set()
                    await connection.wait_closed()
                    self.left.set()
                    return
                await connection.send(json.dumps(step))


def _json(connection: ServerConnection, status: HTTPStatus, body: Frame) -> Response:
    response = connection.respond(status, json.dumps(body))
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response


def _port(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])
