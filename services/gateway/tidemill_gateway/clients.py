"""Stubs of the other services, with deadlines, and their failures as catalogue errors."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Final

import grpc.aio

from tidemill.common.v1 import common_pb2
from tidemill.decode.v1 import decode_service_pb2, decode_service_pb2_grpc
from tidemill.router.v1 import router_service_pb2, router_service_pb2_grpc
from tidemill.safety.v1 import safety_service_pb2, safety_service_pb2_grpc
from tidemill.tokenizer.v1 import tokenizer_service_pb2, tokenizer_service_pb2_grpc
from tidemill_common import rpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import backends
from tidemill_gateway.backends import (
    Chunk,
    Deadline,
    Direction,
    Finish,
    Hop,
    Job,
    Placement,
    Preamble,
    Prompt,
    Rendered,
    Verdict,
    Worker,
    WorkerId,
)
from tidemill_gateway.items import Message, ModelOutput, Reasoning, RenderItem, ToolCall, ToolList, ToolOutput
from tidemill_gateway.tools import FlatTool

CALL_SECONDS: Final = 15.0
MAX_CHANNELS: Final = 256

_DIRECTIONS = {
    Direction.INPUT: safety_service_pb2.DIRECTION_INPUT,
    Direction.OUTPUT: safety_service_pb2.DIRECTION_OUTPUT,
    Direction.TOOL_ARGUMENTS: safety_service_pb2.DIRECTION_TOOL_ARGUMENTS,
}
_FINISHES = {
    common_pb2.FINISH_REASON_END_OF_TURN: Finish.END,
    common_pb2.FINISH_REASON_STOP: Finish.STOP,
    common_pb2.FINISH_REASON_LENGTH: Finish.LENGTH,
}


@contextlib.contextmanager
def _errors_of(service: str) -> Iterator[None]:
    """Name the service in what goes wrong on the way to it."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        found = rpc.from_rpc_error(error)
        if found.reason in (Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED):
            found = TidemillError(Reason.UNAVAILABLE, f"the {service} does not answer: {found.message}")
        raise found from error


def _hop(message: common_pb2.Hop) -> Hop:
    return Hop(message.service, message.node, message.node_type, message.milliseconds, message.pid)


def _ref(worker: WorkerId) -> common_pb2.WorkerRef:
    return common_pb2.WorkerRef(worker_id=worker.name, epoch=worker.epoch)


def _worker(message: router_service_pb2.Worker) -> Worker:
    return Worker(WorkerId(message.ref.worker_id, message.ref.epoch), message.address, message.block_size)


def _tool(tool: FlatTool) -> tokenizer_service_pb2.Tool:
    return tokenizer_service_pb2.Tool(name=tool.name, description=tool.description, parameters_json=tool.parameters_json)


def _item(item: RenderItem) -> tokenizer_service_pb2.Item:
    match item:
        case Message(role, text):
            return tokenizer_service_pb2.Item(message=tokenizer_service_pb2.Message(role=role, text=text))
        case ToolCall(name, arguments):
            return tokenizer_service_pb2.Item(tool_call=tokenizer_service_pb2.ToolCall(name=name, arguments=arguments))
        case ToolOutput(output):
            return tokenizer_service_pb2.Item(tool_output=tokenizer_service_pb2.ToolOutput(output=output))
        case ToolList(tools):
            listed = tokenizer_service_pb2.ToolList(tools=[_tool(tool) for tool in tools])
            return tokenizer_service_pb2.Item(tool_list=listed)
        case Reasoning(text):
            return tokenizer_service_pb2.Item(reasoning=tokenizer_service_pb2.Reasoning(text=text))
        case ModelOutput(token_ids):
            return tokenizer_service_pb2.Item(model_output=tokenizer_service_pb2.ModelOutput(token_ids=token_ids))


class TokenizerClient:
    """The tokenizer. A restart of it is waited for, within the call's time."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = tokenizer_service_pb2_grpc.TokenizerServiceStub(channel)

    async def model(self, seconds: float) -> tokenizer_service_pb2.GetModelResponse:
        """The served model's text side."""
        with _errors_of("tokenizer"):
            request = tokenizer_service_pb2.GetModelRequest()
            return await self._stub.GetModel(request, timeout=seconds, wait_for_ready=True)

    async def render(
        self, state: bytes, preamble: Preamble, items: Sequence[RenderItem], *, open_turn: bool, deadline: Deadline
    ) -> Rendered:
        """See ``backends.Tokenizer``."""
        request = tokenizer_service_pb2.RenderRequest(state=state, items=[_item(item) for item in items], open_turn=open_turn)
        if not state:
            request.instructions = preamble.instructions
            request.tools.extend(_tool(tool) for tool in preamble.tools)
        with _errors_of("tokenizer"):
            answer = await self._stub.Render(request, timeout=deadline.left(CALL_SECONDS), wait_for_ready=True)
        return Rendered(answer.token_ids, answer.state, answer.text, _hop(answer.hop))

    async def render_output(self, items: Sequence[Message | ToolCall | Reasoning], *, deadline: Deadline) -> bytes:
        """See ``backends.Tokenizer``."""
        request = tokenizer_service_pb2.RenderOutputRequest(items=[_item(item) for item in items])
        with _errors_of("tokenizer"):
            answer = await self._stub.RenderOutput(request, timeout=deadline.left(CALL_SECONDS), wait_for_ready=True)
        return answer.token_ids


class SafetyClient:
    """The safety service. No verdict in time is an error: nothing passes unjudged."""

    def __init__(self, channel: grpc.aio.Channel, seconds: float) -> None:
        self._stub = safety_service_pb2_grpc.SafetyServiceStub(channel)
        self._seconds = seconds

    async def check(self, context: str, text: str, direction: Direction, *, deadline: Deadline) -> Verdict:
        """See ``backends.Safety``."""
        request = safety_service_pb2.CheckRequest(context=context, text=text, direction=_DIRECTIONS[direction])
        try:
            answer = await self._stub.Check(request, timeout=deadline.left(self._seconds), wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise TidemillError(Reason.SAFETY_UNAVAILABLE, f"no verdict: {error.details() or error.code().name}") from error
        return Verdict(answer.allowed, answer.rule, _hop(answer.hop))


class RouterClient:
    """The router."""

    def __init__(self, channel: grpc.aio.Channel, model_fingerprint: str) -> None:
        self._stub = router_service_pb2_grpc.RouterServiceStub(channel)
        self._fingerprint = model_fingerprint

    async def route(self, prompt: Prompt, excluded: Sequence[WorkerId], *, deadline: Deadline) -> Placement:
        """See ``backends.Router``."""
        request = router_service_pb2.RouteRequest(
            parent_digest=prompt.parent_digest,
            parent_blocks=prompt.parent_blocks,
            block_digests=b"".join(prompt.block_digests),
            token_count=prompt.token_count,
            excluded=[_ref(worker) for worker in excluded],
            session=prompt.session,
            model_fingerprint=self._fingerprint,
        )
        with _errors_of("router"):
            answer = await self._stub.Route(request, timeout=deadline.left(CALL_SECONDS), wait_for_ready=True)
        prefill = _worker(answer.prefill).id if answer.HasField("prefill") else None
        return Placement(_worker(answer.decode), answer.decode_blocks, prefill, _hop(answer.hop))


class DecodeClient:
    """Decode workers, by the address that the router gave. A worker that does not answer is not waited for."""

    def __init__(self, model_fingerprint: str) -> None:
        self._fingerprint = model_fingerprint
        self._channels: OrderedDict[str, _Channel] = OrderedDict()

    async def generate(self, worker: Worker, job: Job, *, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """See ``backends.Decoder``."""
        async with self._channel(worker.address) as channel:
            stub = decode_service_pb2_grpc.DecodeServiceStub(channel)
            call = stub.Generate(self._request(job), timeout=deadline.left())
            try:
                with rpc.mapped_errors():
                    async for answer in call:
                        yield _chunk(answer)
            finally:
                call.cancel()

    async def close(self) -> None:
        """Close every channel."""
        while self._channels:
            _, held = self._channels.popitem()
            await held.channel.close()

    def _request(self, job: Job) -> decode_service_pb2.GenerateRequest:
        return decode_service_pb2.GenerateRequest(
            request_id=job.request_id,
            root_digest=job.root,
            prefix_digest=job.prefix_digest,
            prefix_blocks=job.prefix_blocks,
            token_ids=job.packed,
            sampling=_sampling(job.sampling),
            prefill=_ref(job.prefill) if job.prefill else None,
            model_fingerprint=self._fingerprint,
            block_size=job.block_size,
            resumed_tokens=job.resumed_tokens,
        )

    @contextlib.asynccontextmanager
    async def _channel(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        held = self._channels.get(address) or _Channel(rpc.connect(address))
        self._channels[address] = held
        self._channels.move_to_end(address)
        held.users += 1
        try:
            yield held.channel
        except TidemillError as error:
            if error.reason is Reason.UNAVAILABLE:
                held.broken = True
            raise
        finally:
            held.users -= 1
            await self._discard()

    async def _discard(self) -> None:
        """Close channels of workers that went away, and the least used ones above the bound, once nobody uses them."""
        surplus = len(self._channels) - MAX_CHANNELS
        for address, held in list(self._channels.items()):
            if held.users == 0 and (held.broken or surplus > 0):
                del self._channels[address]
                surplus -= 1
                await held.channel.close()


class _Channel:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.users = 0
        self.broken = False


def _sampling(sampling: backends.Sampling) -> common_pb2.Sampling:
    return common_pb2.Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        end_token_ids=sampling.end_token_ids,
        grammar=sampling.grammar,
        forced_token_ids=sampling.forced,
    )


def _chunk(answer: decode_service_pb2.GenerateResponse) -> Chunk:
    finish = _FINISHES.get(answer.finish_reason)
    return Chunk(answer.token_ids, finish, answer.cached_tokens, tuple(_hop(hop) for hop in answer.hops))
