from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import REGISTRY

from tests.common.generic_server import SERVICE, handlers, serving, streaming, unary
from tidemill_common import rpc
from tidemill_common.errors import Reason, TidemillError

Context = grpc.aio.ServicerContext[bytes, bytes]


def path(method: str, service: str = SERVICE) -> str:
    return f"/{service}/{method}"


async def failure(channel: Any, method: str, request: bytes = b"") -> TidemillError:
    """What a failing unary call raises on the client."""
    with pytest.raises(TidemillError) as caught, rpc.mapped_errors():
        await channel.unary_unary(path(method))(request, timeout=20)
    return caught.value


async def fail(request: bytes, context: Context) -> bytes:
    raise TidemillError(Reason(request.decode()), f"because of {request!r}", "input[0].name")


@pytest.mark.requirement("errors:cross-services")
@pytest.mark.parametrize("reason", list(Reason))
async def test_every_reason_crosses_a_call_with_message_and_field(reason: Reason) -> None:
    async with serving(handlers(Fail=unary(fail))) as channel:
        error = await failure(channel, "Fail", reason.value.encode())
    assert (error.reason, error.param) == (reason, "input[0].name")
    assert error.message == f"because of {reason.value.encode()!r}"


@pytest.mark.requirement("errors:cross-services")
async def test_a_streaming_call_gives_its_messages_before_its_error() -> None:
    async def count(request: bytes, context: Context) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"
        raise TidemillError(Reason.WORKER_LOST, "gone")

    received = []
    async with serving(handlers(Count=streaming(count))) as channel:
        with pytest.raises(TidemillError) as caught, rpc.mapped_errors():
            async for message in channel.unary_stream(path("Count"))(b"", timeout=20):
                received.append(message)
    assert received == [b"1", b"2"]
    assert (caught.value.reason, caught.value.param) == (Reason.WORKER_LOST, None)


@pytest.mark.parametrize("kind", ["unary", "stream"])
async def test_an_unexpected_exception_is_internal_logged_and_counted(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: bytes, context: Context) -> bytes:
        raise ZeroDivisionError("oops")

    async def broken_stream(request: bytes, context: Context) -> AsyncIterator[bytes]:
        yield b"1"
        raise ZeroDivisionError("oops")

    labels = {"service": "test", "reason": "INTERNAL"}
    before = REGISTRY.get_sample_value("tidemill_errors_total", labels) or 0
    async with serving(handlers(Broken=unary(broken), BrokenStream=streaming(broken_stream))) as channel:
        with pytest.raises(TidemillError, match="ZeroDivisionError: oops") as caught, rpc.mapped_errors():
            if kind == "unary":
                await channel.unary_unary(path("Broken"))(b"", timeout=20)
            else:
                _ = [message async for message in channel.unary_stream(path("BrokenStream"))(b"", timeout=20)]
    assert caught.value.reason is Reason.INTERNAL
    assert "Traceback" in caplog.text
    assert REGISTRY.get_sample_value("tidemill_errors_total", labels) == before + 1


@pytest.mark.requirement("rpc:cancel")
async def test_a_cancelled_call_ends_its_handler() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: bytes, context: Context) -> AsyncIterator[bytes]:
        try:
            yield b"started"
            entered.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(handlers(Wait=streaming(wait))) as channel:
        call = channel.unary_stream(path("Wait"))(b"", timeout=20)
        assert await call.read() == b"started"
        await entered.wait()
        call.cancel()
        await asyncio.wait_for(ended.wait(), 20)
        assert await call.code() is grpc.StatusCode.CANCELLED


@pytest.mark.requirement("rpc:deadline")
async def test_a_deadline_ends_the_handler_and_reads_as_one() -> None:
    ended = asyncio.Event()

    async def wait(request: bytes, context: Context) -> bytes:
        try:
            await asyncio.Event().wait()
            return b""
        finally:
            ended.set()

    async with serving(handlers(Wait=unary(wait))) as channel:
        with pytest.raises(TidemillError) as caught, rpc.mapped_errors():
            await channel.unary_unary(path("Wait"))(b"", timeout=0.2)
        await asyncio.wait_for(ended.wait(), 20)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED


@pytest.mark.requirement("rpc:deadline")
async def test_what_remains_of_the_callers_deadline_is_never_more_than_the_default() -> None:
    async def remaining(request: bytes, context: Context) -> bytes:
        return str(rpc.remaining(context, 5.0)).encode()

    async with serving(handlers(Remaining=unary(remaining))) as channel:
        call = channel.unary_unary(path("Remaining"))
        assert float(await call(b"")) == 5.0
        assert 0 < float(await call(b"", timeout=4.0)) < 4.9
        assert float(await call(b"", timeout=500.0)) == 5.0


async def test_a_server_that_is_not_there_reads_as_unavailable() -> None:
    async with rpc.connect("127.0.0.1:1") as channel:
        error = await failure(channel, "Any")
    assert error.reason is Reason.UNAVAILABLE


async def test_a_method_that_is_not_there_reads_as_internal() -> None:
    async with serving(handlers()) as channel:
        assert (await failure(channel, "Any")).reason is Reason.INTERNAL


async def test_a_status_without_reason_or_with_an_unknown_one_maps_by_its_code() -> None:
    async def refuse(request: bytes, context: Context) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", ((rpc.REASON_KEY, "FROM_THE_FUTURE"),))

    async with serving(handlers("other.v1.Service", Refuse=unary(refuse))) as channel:
        with pytest.raises(TidemillError, match="full") as caught, rpc.mapped_errors():
            await channel.unary_unary(path("Refuse", "other.v1.Service"))(b"", timeout=20)
    assert caught.value.reason is Reason.OVERLOADED


@pytest.mark.parametrize("text", ["größe\n日本", "x" * 100_000, "\ud800"])
async def test_any_message_and_field_arrive_as_a_readable_error(text: str) -> None:
    async def refuse(request: bytes, context: Context) -> bytes:
        raise TidemillError(Reason.INVALID_REQUEST, f"no such field {text}", text)

    async with serving(handlers(Refuse=unary(refuse))) as channel:
        error = await failure(channel, "Refuse")
    assert error.reason is Reason.INVALID_REQUEST
    assert error.message.startswith("no such field ")
    assert error.param
    assert text.startswith(error.param) or error.param == "\\ud800"


async def test_messages_of_many_megabytes_pass() -> None:
    async def echo(request: bytes, context: Context) -> bytes:
        return request

    async with serving(handlers(Echo=unary(echo))) as channel:
        sent = bytes(8 << 20)
        assert await channel.unary_unary(path("Echo"))(sent, timeout=60) == sent


async def test_calls_of_client_streams_are_wrapped_too() -> None:
    async def total(requests: AsyncIterator[bytes], context: Context) -> bytes:
        return str(sum([len(each) async for each in requests])).encode()

    async def lengths(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for each in requests:
            if not each:
                raise TidemillError(Reason.INVALID_REQUEST, "empty")
            yield str(len(each)).encode()

    async def sent(*messages: bytes) -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    methods: dict[str, Any] = {
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Lengths": grpc.stream_stream_rpc_method_handler(lengths),
    }
    async with serving(handlers(**methods)) as channel:
        assert await channel.stream_unary(path("Total"))(sent(b"a", b"bc"), timeout=20) == b"3"
        received = []
        with pytest.raises(TidemillError, match="empty"), rpc.mapped_errors():
            async for each in channel.stream_stream(path("Lengths"))(sent(b"ab", b""), timeout=20):
                received.append(each)
    assert received == [b"2"]


async def test_durations_are_counted_by_method_and_node_type() -> None:
    async def echo(request: bytes, context: Context) -> bytes:
        return request

    async with serving(handlers(Timed=unary(echo))) as channel:
        await channel.unary_unary(path("Timed"))(b"", timeout=20)
    samples = [s for m in REGISTRY.collect() if m.name == "tidemill_rpc_duration_seconds" for s in m.samples]
    assert any(s.labels.get("method") == "Timed" and s.labels["node_type"] and s.value >= 1 for s in samples)
