"""The one place where catalogue errors and gRPC statuses meet, in both directions, and where channels are made."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import grpc
import grpc.aio

from tidemill_common import cpu, telemetry
from tidemill_common.errors import CATALOGUE, Reason, TidemillError

log = logging.getLogger(__name__)

REASON_KEY = "tidemill-reason"
PARAM_KEY = "tidemill-param"
MAX_MESSAGE_BYTES = 64 << 20
LONGEST_MESSAGE_BYTES = 2048
LONGEST_FIELD_BYTES = 256
OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # its default of 60 s would count instead
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

_BY_STATUS = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED: Reason.CANCELLED,
    grpc.StatusCode.UNAVAILABLE: Reason.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_REQUEST,
}


def connect(address: str) -> grpc.aio.Channel:
    """A channel to ``address`` (host:port, or a gRPC target such as dns:///name:port); it connects on first use."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


def from_rpc_error(error: grpc.aio.AioRpcError) -> TidemillError:
    """The catalogue error that a failed call carries."""
    trailers = {key: value for key, value in (error.trailing_metadata() or ()) if isinstance(value, str)}
    name = trailers.get(REASON_KEY, "")
    reason = Reason(name) if name in Reason.__members__ else _BY_STATUS.get(error.code(), Reason.INTERNAL)
    field = urllib.parse.unquote(trailers.get(PARAM_KEY, ""))
    return TidemillError(reason, error.details() or error.code().name, field or None)


@contextlib.contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn AioRpcError inside the block into TidemillError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


def remaining(context: grpc.aio.ServicerContext[Any, Any], default: float) -> float:
    """Seconds until the caller's deadline, at most ``default``: what to pass on as ``timeout``, since gRPC does not."""
    left = cast(float | None, context.time_remaining())
    return default if left is None else max(0.0, min(left, default))


class Boundary(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Server side of the mapping: a TidemillError becomes a status with its reason; anything else is logged and INTERNAL."""

    def __init__(self, service: str) -> None:
        self.service = service

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of this service's own methods; health and reflection pass as they are."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith("/tidemill."):
            return handler
        wrap = self._stream if handler.response_streaming else self._unary
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[(bool(handler.request_streaming), bool(handler.response_streaming))]
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        return make(wrap(inner, method.rsplit("/", 1)[-1]), handler.request_deserializer, handler.response_serializer)

    def _unary(self, inner: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async with self._observed(method, context):
                return await inner(request, context)

        return call

    def _stream(self, inner: Callable[..., AsyncIterator[Any]], method: str) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            async with self._observed(method, context), contextlib.aclosing(inner(request, context)) as responses:  # type: ignore[type-var]
                async for response in responses:
                    yield response

        return call

    @contextlib.asynccontextmanager
    async def _observed(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        started = time.monotonic()
        try:
            yield
        except TidemillError as error:
            await self._abort(context, error)
        except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
            raise
        except Exception as error:
            log.exception("%s failed", method)
            await self._abort(context, TidemillError(Reason.INTERNAL, f"{type(error).__name__}: {error}"))
        finally:
            telemetry.RPC_SECONDS.labels(self.service, method, cpu.node_type()).observe(time.monotonic() - started)

    async def _abort(self, context: grpc.aio.ServicerContext[Any, Any], error: TidemillError) -> None:
        telemetry.ERRORS.labels(self.service, error.reason).inc()
        field = urllib.parse.quote(_clipped(error.param or "", LONGEST_FIELD_BYTES))
        trailers = ((REASON_KEY, error.reason.value), (PARAM_KEY, field))
        message = _clipped(error.message, LONGEST_MESSAGE_BYTES)
        await context.abort(getattr(grpc.StatusCode, CATALOGUE[error.reason].grpc), message, trailers)


def _clipped(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` bytes of valid UTF-8: a peer drops a status that is longer than 16 KiB once escaped."""
    data = text.encode("utf-8", "backslashreplace")
    return text if len(data) == len(text) <= limit else data[:limit].decode("utf-8", "ignore")
