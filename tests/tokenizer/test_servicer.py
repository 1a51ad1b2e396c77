from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tidemill.tokenizer.v1 import tokenizer_service_pb2 as pb
from tidemill.tokenizer.v1 import tokenizer_service_pb2_grpc as pb_grpc
from tidemill_common import tokens
from tidemill_common.errors import Reason
from tidemill_common.model_dir import ModelProfile
from tidemill_common.rpc import OPTIONS, Boundary, connect, from_rpc_error
from tidemill_tokenizer.config import TokenizerSettings
from tidemill_tokenizer.renderer import Renderer
from tidemill_tokenizer.servicer import TokenizerService, describe

DEADLINE = 10.0
USER = pb.Item(message=pb.Message(role="user", text="Hello"))


@contextlib.asynccontextmanager
async def serving(
    model_dir: Path, **settings: object
) -> AsyncIterator[tuple[pb_grpc.TokenizerServiceAsyncStub, TokenizerService]]:
    """A stub of a server on a free port, and the service behind it."""
    service = TokenizerService(TokenizerSettings(model_dir=model_dir, **settings))  # type: ignore[arg-type]
    server = grpc.aio.server(interceptors=[Boundary("tokenizer")], options=OPTIONS)
    assert service.attach(server) == ["tidemill.tokenizer.v1.TokenizerService"]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with connect(f"127.0.0.1:{port}") as channel:
        yield pb_grpc.TokenizerServiceStub(channel), service
    await server.stop(0)
    await service.stop()


@pytest.mark.model
def test_the_default_model_is_described(smollm2: Path, default_renderer: Renderer) -> None:
    model = describe(ModelProfile.load(smollm2), default_renderer, 0)
    assert (model.model, model.family, model.context_length) == ("smollm2", "chatml", 8192)
    assert tokens.unpack(model.end_token_ids) == [2]
    assert model.tool_call_syntax == pb.ToolCallSyntax(
        begin="<tool_call>\n", end="\n</tool_call>", name_key="name", arguments_key="arguments"
    )
    assert (model.delta_tokenization, model.template_difference, model.require_tool_first) == (True, "", True)
    assert (model.thinking_begin, model.thinking_end) == ("", "")


async def test_models_with_thinking_and_other_calls_say_so(model_dirs: Callable[[str], Path]) -> None:
    async with serving(model_dirs("qwen3"), context_length=77) as (stub, service):
        assert await service.start("x") == {"encoder": "tiktoken", "delta_tokenization": False}
        model = await stub.GetModel(pb.GetModelRequest(), timeout=DEADLINE)
        assert (model.thinking_begin, model.thinking_end, model.context_length) == ("<think>", "</think>", 77)
        assert (model.delta_tokenization, model.template_difference[:8]) == (False, "thinking")
    async with serving(model_dirs("llama3.1")) as (stub, _):
        model = await stub.GetModel(pb.GetModelRequest(), timeout=DEADLINE)
        assert model.tool_call_syntax == pb.ToolCallSyntax(begin="", end="", name_key="name", arguments_key="parameters")


async def test_every_kind_of_item_is_rendered_turn_by_turn(model_dirs: Callable[[str], Path]) -> None:
    async with serving(model_dirs("chatml")) as (stub, service):
        tool = pb.Tool(name="f", description="Does.", parameters_json='{"type": "object"}')
        items = [USER, pb.Item(tool_list=pb.ToolList(tools=[tool])), pb.Item(reasoning=pb.Reasoning(text="hm"))]
        first = await stub.Render(
            pb.RenderRequest(instructions="Be brief.", tools=[tool], items=items, open_turn=True), timeout=DEADLINE
        )
        output = await stub.RenderOutput(
            pb.RenderOutputRequest(items=[pb.Item(tool_call=pb.ToolCall(name="f", arguments="{}"))]), timeout=DEADLINE
        )
        sampled = pb.Item(model_output=pb.ModelOutput(token_ids=output.token_ids))
        told = pb.Item(tool_output=pb.ToolOutput(output="seen"))
        second = await stub.Render(pb.RenderRequest(state=first.state, items=[sampled, told], open_turn=True), timeout=DEADLINE)
        shown = service.servicer.renderer.vocabulary.decode(tokens.unpack(first.token_ids + second.token_ids)).decode()
        assert shown.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
        assert shown.endswith(
            '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>\n'
            "<|im_start|>tool\n<tool_response>\nseen\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        )
        assert second.token_ids.startswith(output.token_ids)
        assert (first.text, second.text) == ("Hello", "seen")
        assert (second.hop.service, second.hop.pid > 0, second.hop.milliseconds >= 0) == ("tokenizer", True, True)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (pb.Item(), "items[1]"),
        (pb.Item(message=pb.Message(role="tool", text="x")), "items[1]"),
        (pb.Item(model_output=pb.ModelOutput(token_ids=b"123")), "items[1]"),
        (pb.Item(tool_list=pb.ToolList(tools=[pb.Tool(name="f", parameters_json="[")])), "tools"),
    ],
)
async def test_a_malformed_item_is_an_invalid_argument_that_names_it(
    model_dirs: Callable[[str], Path], item: pb.Item, param: str
) -> None:
    async with serving(model_dirs("chatml")) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Render(pb.RenderRequest(items=[USER, item]), timeout=DEADLINE)
        assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert from_rpc_error(failed.value).param == param
        assert (await stub.Render(pb.RenderRequest(items=[USER]), timeout=DEADLINE)).token_ids


@pytest.mark.requirement("tokenizer:bounded")
async def test_a_request_over_the_limit_is_refused_and_names_the_limit(model_dirs: Callable[[str], Path]) -> None:
    async with serving(model_dirs("chatml"), max_bytes=1000) as (stub, _):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Render(pb.RenderRequest(instructions="x" * 2000), timeout=DEADLINE)
        error = from_rpc_error(failed.value)
        assert error.reason == Reason.REQUEST_TOO_LARGE
        assert "TIDEMILL_TOKENIZER_MAX_BYTES" in error.message


@pytest.mark.requirement("tokenizer:bounded")
async def test_a_long_text_stalls_no_other_and_too_many_are_refused(
    model_dirs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(model_dirs("chatml"), threads=1, waiting=0) as (stub, service):
        begun, gate = threading.Event(), threading.Event()
        encode = service.servicer.renderer.encoder.encode

        def slow(text: str) -> list[int]:
            if len(text) > 4096:
                begun.set()
                gate.wait(DEADLINE)
            return encode(text)

        monkeypatch.setattr(service.servicer.renderer.encoder, "encode", slow)
        long = pb.RenderRequest(instructions="word " * 2000)
        call = stub.Render(long, timeout=DEADLINE)
        await asyncio.to_thread(begun.wait, DEADLINE)
        assert (await stub.Render(pb.RenderRequest(items=[USER]), timeout=DEADLINE)).token_ids
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Render(long, timeout=DEADLINE)
        assert from_rpc_error(refused.value).reason == Reason.OVERLOADED
        gate.set()
        assert len((await call).token_ids) > 4 * 2000
