"""A real gRPC server on port 0 whose methods are plain functions over bytes, behind the boundary that every service has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from tidemill_common import rpc

SERVICE = "tidemill.test.v1.TestService"


def handlers(service: str = SERVICE, **methods: grpc.RpcMethodHandler[bytes, bytes]) -> grpc.GenericRpcHandler:
    """Methods of one service; without serialisers, messages are bytes."""
    return grpc.method_handlers_generic_handler(service, methods)


def unary(behaviour: Callable[..., Any]) -> grpc.RpcMethodHandler[bytes, bytes]:
    return grpc.unary_unary_rpc_method_handler(behaviour)


def streaming(behaviour: Callable[..., Any]) -> grpc.RpcMethodHandler[bytes, bytes]:
    return grpc.unary_stream_rpc_method_handler(behaviour)


@asynccontextmanager
async def serving(*methods: grpc.GenericRpcHandler) -> AsyncIterator[Any]:
    """A channel to a server with these methods, which ends with the block."""
    server = grpc.aio.server(interceptors=[rpc.Boundary("test")], options=rpc.OPTIONS)
    server.add_generic_rpc_handlers(methods)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with rpc.connect(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)
