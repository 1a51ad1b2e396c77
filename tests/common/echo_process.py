"""A service for tests of the life cycle: `python -m tests.common.echo_process [hang|fail|broken]`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from pydantic_settings import SettingsConfigDict

from tests.common.generic_server import handlers
from tidemill_common import server
from tidemill_common.config import ServiceSettings
from tidemill_common.errors import Reason, TidemillError

NAME = "tidemill.test.v1.EchoService"


class EchoSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TIDEMILL_ECHO_", frozen=True, extra="forbid")


class Echo:
    """Answers each message of a stream; how it starts is the process's argument."""

    def attach(self, grpc_server: grpc.aio.Server) -> list[str]:
        grpc_server.add_generic_rpc_handlers([handlers(NAME, Talk=grpc.stream_stream_rpc_method_handler(self.talk))])
        return [NAME]

    async def talk(self, requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def start(self, address: str) -> dict[str, object]:
        match sys.argv[1:]:
            case ["hang"]:
                print("starting", file=sys.stderr, flush=True)
                await asyncio.Event().wait()
            case ["fail"]:
                raise TidemillError(Reason.NO_WORKERS, "no worker to echo with")
            case ["broken"]:
                raise ZeroDivisionError
        return {"url": f"echo://{address}"}

    async def drain(self) -> None:
        print("draining", file=sys.stderr, flush=True)

    async def stop(self) -> None:
        print("stopped", file=sys.stderr, flush=True)


if __name__ == "__main__":
    server.run("echo", EchoSettings.read, Echo)
