"""Fakes of the services around the gateway: a byte-level model without a model, whose answers, delays and failures a test sets.

Ids are bytes plus two special tokens; a worker holds the blocks of what it computed, so cached tokens and PREFIX_UNKNOWN are
true.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from tidemill.common.v1 import common_pb2
from tidemill.decode.v1 import decode_service_pb2 as decode
from tidemill.decode.v1 import decode_service_pb2_grpc as decode_grpc
from tidemill.router.v1 import router_service_pb2 as router
from tidemill.router.v1 import router_service_pb2_grpc as router_grpc
from tidemill.safety.v1 import safety_service_pb2 as safety
from tidemill.safety.v1 import safety_service_pb2_grpc as safety_grpc
from tidemill.tokenizer.v1 import tokenizer_service_pb2 as tokenizer
from tidemill.tokenizer.v1 import tokenizer_service_pb2_grpc as tokenizer_grpc
from tidemill_common import digests, rpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.telemetry import Identity
from tidemill_common.tokens import pack, unpack
from tidemill_common.vocabulary import byte_alphabet

START, END = 256, 257
SPECIAL = {"<|im_start|>": START, "<|im_end|>": END}
FINGERPRINT = "fake-bytes"
BLOCK = 16
CONTEXT_LENGTH = 4096


def make_model_dir(directory: Path) -> Path:
    """The text side of the fake model."""
    directory.mkdir(parents=True, exist_ok=True)
    added = [{"id": token, "content": text, "special": True} for text, token in SPECIAL.items()]
    bpe = {"type": "BPE", "vocab": byte_alphabet(), "merges": []}
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": bpe}), encoding="utf-8")
    ModelProfile("fake", "chatml", FINGERPRINT, CONTEXT_LENGTH, (END,)).save(directory)
    return directory


def encode(text: str) -> list[int]:
    """Ids of ``text``, special tokens where they are written out."""
    ids: list[int] = []
    while text:
        special = next((name for name in SPECIAL if text.startswith(name)), None)
        if special:
            ids.append(SPECIAL[special])
            text = text[len(special) :]
        else:
            ids += text[0].encode()
            text = text[1:]
    return ids


def decode_text(ids: Iterable[int]) -> str:
    """Text of ``ids``."""
    names = {token: text.encode() for text, token in SPECIAL.items()}
    return b"".join(names.get(token) or bytes([token]) for token in ids).decode("utf-8", "replace")


class FakeTokenizer(tokenizer_grpc.TokenizerServiceServicer):
    """ChatML over bytes. The render state says whether a model turn is open."""

    def __init__(self) -> None:
        self.requests: list[tokenizer.RenderRequest] = []
        self.appends = True
        self.require_tool_first = False
        self.broken: TidemillError | None = None

    async def GetModel(self, request: Any, context: Any) -> tokenizer.GetModelResponse:  # noqa: N802
        return tokenizer.GetModelResponse(
            model="fake",
            fingerprint=FINGERPRINT,
            family="chatml",
            context_length=CONTEXT_LENGTH,
            end_token_ids=pack([END]),
            tool_call_syntax=tokenizer.ToolCallSyntax(
                begin="<tool_call>\n", end="\n</tool_call>", name_key="name", arguments_key="arguments"
            ),
            delta_tokenization=self.appends,
            require_tool_first=self.require_tool_first,
        )

    async def Render(self, request: tokenizer.RenderRequest, context: Any) -> tokenizer.RenderResponse:  # noqa: N802
        started = time.monotonic()
        self.requests.append(request)
        if self.broken:
            raise self.broken
        ids, texts = ([], []) if request.state else self._preamble(request)
        open_turn = request.state == b"open"
        for item in request.items:
            more, text = self._item(item, open_turn)
            open_turn = False
            ids += more
            texts += [text] if text else []
        if request.open_turn:
            ids += encode("<|im_start|>assistant\n")
        hop = Identity("tokenizer", "here").hop(started)
        state = b"open" if request.open_turn else b"closed"
        return tokenizer.RenderResponse(token_ids=pack(ids), state=state, text="\n".join(texts), hop=hop)

    async def RenderOutput(self, request: tokenizer.RenderOutputRequest, context: Any) -> tokenizer.RenderOutputResponse:  # noqa: N802
        ids: list[int] = []
        for item in request.items:
            if item.WhichOneof("kind") == "tool_call":
                ids += encode(call_text(item.tool_call.name, item.tool_call.arguments))
            else:
                ids += encode(item.message.text or item.reasoning.text)
        return tokenizer.RenderOutputResponse(token_ids=pack([*ids, END]))

    @staticmethod
    def _preamble(request: tokenizer.RenderRequest) -> tuple[list[int], list[str]]:
        tools = "".join(f"\n{tool.name}: {tool.parameters_json}" for tool in request.tools)
        if not request.instructions and not tools:
            return [], []
        return encode(f"<|im_start|>system\n{request.instructions}{tools}<|im_end|>\n"), []

    @staticmethod
    def _item(item: tokenizer.Item, open_turn: bool) -> tuple[list[int], str]:
        match item.WhichOneof("kind"):
            case "message":
                role, text = item.message.role, item.message.text
                return encode(f"<|im_start|>{role}\n{text}<|im_end|>\n"), "" if role == "assistant" else text
            case "tool_output":
                return encode(f"<|im_start|>tool\n{item.tool_output.output}<|im_end|>\n"), item.tool_output.output
            case "model_output":
                ids = unpack(item.model_output.token_ids)
                glue = [] if ids and ids[-1] == END else [END]
                header = [] if open_turn else encode("<|im_start|>assistant\n")
                return [*header, *ids, *glue, *encode("\n")], ""
            case "tool_call":
                call = call_text(item.tool_call.name, item.tool_call.arguments)
                return encode(f"<|im_start|>assistant\n{call}<|im_end|>\n"), ""
            case "tool_list":
                names = ", ".join(tool.name for tool in item.tool_list.tools)
                return encode(f"<|im_start|>system\n{names}<|im_end|>\n"), ""
            case _:
                return encode(f"<|im_start|>assistant\n{item.reasoning.text}<|im_end|>\n"), ""


def call_text(name: str, arguments: str) -> str:
    """A tool call as the fake model writes it."""
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


class FakeSafety(safety_grpc.SafetyServiceServicer):
    """Refuses text that holds a forbidden word, context included when the word reaches into the new text."""

    def __init__(self) -> None:
        self.forbidden = "FORBIDDEN"
        self.requests: list[safety.CheckRequest] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.asked: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.fails = False

    def gate(self, direction: int) -> asyncio.Event:
        """Verdicts of that direction wait for the event."""
        return self.gates.setdefault(direction, asyncio.Event())

    async def Check(self, request: safety.CheckRequest, context: Any) -> safety.CheckResponse:  # noqa: N802
        started = time.monotonic()
        self.requests.append(request)
        self.asked[request.direction].set()
        if self.fails:
            raise TidemillError(Reason.INTERNAL, "the classifier is broken")
        if gate := self.gates.get(request.direction):
            await gate.wait()
        overlap = request.context[-len(self.forbidden) + 1 :] + request.text
        bad = self.forbidden in overlap
        hop = Identity("safety", "here").hop(started)
        return safety.CheckResponse(allowed=not bad, rule="forbidden-word" if bad else "", score=float(bad), hop=hop)


@dataclass
class Script:
    """How a worker behaves: what it answers to a prompt's text, and how it fails.

    ``fail_after`` tokens a worker ends its stream with ``failure``; ``pause_after`` tokens it waits for ``resume``.
    """

    reply: Callable[[str], str] = field(default=lambda prompt: "Hello there.")
    fail_after: int | None = None
    failure: TidemillError = field(default_factory=lambda: TidemillError(Reason.UNAVAILABLE, "the worker died"))
    pause_after: int | None = None
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    chunk: int = 4


class FakeDecode(decode_grpc.DecodeServiceServicer):
    """A worker that answers by script and remembers the blocks of what it saw."""

    def __init__(self, worker_id: str, script: Script) -> None:
        self.ref = common_pb2.WorkerRef(worker_id=worker_id, epoch=1)
        self.script = script
        self.address = ""
        self.active = 0
        self.requests: list[decode.GenerateRequest] = []
        self.prefixes: dict[bytes, bytes] = {}
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def Generate(  # noqa: N802
        self, request: decode.GenerateRequest, context: Any
    ) -> AsyncIterator[decode.GenerateResponse]:
        started = time.monotonic()
        self.requests.append(request)
        self.asked.set()
        self.active += 1
        try:
            prompt = self._prompt(request)
            cached = self._cached(request, prompt)
            async for ids, finish in self._answer(request, prompt):
                last = finish != common_pb2.FINISH_REASON_UNSPECIFIED
                hops = [Identity("decode", "here").hop(started)] if last else []
                yield decode.GenerateResponse(token_ids=pack(ids), finish_reason=finish, cached_tokens=cached, hops=hops)
                cached = 0
        finally:
            self.active -= 1
            self.answered.set()

    async def GetWorker(self, request: Any, context: Any) -> decode.GetWorkerResponse:  # noqa: N802
        return decode.GetWorkerResponse(ref=self.ref, fingerprint=FINGERPRINT, block_size=BLOCK, sequences=self.active)

    def forget(self) -> None:
        """Lose every block."""
        self.prefixes.clear()

    def held(self, chain: Sequence[bytes]) -> int:
        """Leading blocks of ``chain`` that it holds."""
        return next((n for n, digest in enumerate(chain) if digest not in self.prefixes), len(chain))

    def _prompt(self, request: decode.GenerateRequest) -> list[int]:
        if request.prefix_blocks == 0:
            return unpack(request.token_ids)
        if request.prefix_digest not in self.prefixes:
            raise TidemillError(Reason.PREFIX_UNKNOWN, "that prefix is not held")
        return unpack(self.prefixes[request.prefix_digest] + request.token_ids)

    def _cached(self, request: decode.GenerateRequest, prompt: list[int]) -> int:
        chain = digests.chain(request.root_digest, pack(prompt), request.block_size)
        cached = min(self.held(chain) * request.block_size, len(prompt) - 1)
        self._store(request, prompt)
        return cached

    def _store(self, request: decode.GenerateRequest, ids: list[int]) -> None:
        packed, width = pack(ids), request.block_size * 4
        for number, digest in enumerate(digests.chain(request.root_digest, packed, request.block_size), 1):
            self.prefixes[digest] = packed[: number * width]

    async def _answer(
        self, request: decode.GenerateRequest, prompt: list[int]
    ) -> AsyncIterator[tuple[list[int], common_pb2.FinishReason.ValueType]]:
        sampling, script = request.sampling, self.script
        begin = len(prompt) - request.resumed_tokens
        text = decode_text(prompt[:begin])
        whole = unpack(sampling.forced_token_ids) or [*encode(script.reply(text)), END]
        ids = whole[: sampling.max_tokens] if sampling.max_tokens else []
        for at in range(request.resumed_tokens, len(ids), script.chunk):
            if script.pause_after is not None and at >= script.pause_after:
                await script.resume.wait()
            if script.fail_after is not None and at >= script.fail_after:
                raise script.failure
            yield ids[at : min(at + script.chunk, len(ids))], common_pb2.FINISH_REASON_UNSPECIFIED
        self._store(request, [*prompt[:begin], *ids[:-1]])
        yield [], common_pb2.FINISH_REASON_LENGTH if len(ids) < len(whole) else common_pb2.FINISH_REASON_END_OF_TURN


class FakeRouter(router_grpc.RouterServiceServicer):
    """Chooses the worker that holds most; it looks into the workers, so it never lags."""

    def __init__(self, workers: list[FakeDecode]) -> None:
        self.workers = workers
        self.requests: list[router.RouteRequest] = []
        self.block_size = BLOCK
        self.changed = asyncio.Event()

    async def Route(self, request: router.RouteRequest, context: Any) -> router.RouteResponse:  # noqa: N802
        started = time.monotonic()
        self.requests.append(request)
        self.changed.set()
        excluded = {(ref.worker_id, ref.epoch) for ref in request.excluded}
        able = [each for each in self.workers if (each.ref.worker_id, each.ref.epoch) not in excluded]
        if not able:
            raise TidemillError(Reason.NO_WORKERS, "no decode worker is registered")
        blocks = {each.ref.worker_id: self._held(each, request) for each in able}
        best = max(able, key=lambda each: blocks[each.ref.worker_id])
        chosen = router.Worker(ref=best.ref, address=best.address, block_size=self.block_size)
        hop = Identity("router", "here").hop(started)
        return router.RouteResponse(decode=chosen, decode_blocks=blocks[best.ref.worker_id], reason="cache", hop=hop)

    async def ListWorkers(self, request: Any, context: Any) -> router.ListWorkersResponse:  # noqa: N802
        return router.ListWorkersResponse(workers=[router.Worker(ref=each.ref, address=each.address) for each in self.workers])

    async def Register(self, request_iterator: Any, context: Any) -> AsyncIterator[router.RegisterResponse]:  # noqa: N802
        yield router.RegisterResponse()

    @staticmethod
    def _held(worker: FakeDecode, request: router.RouteRequest) -> int:
        if request.parent_blocks and request.parent_digest not in worker.prefixes:
            return 0
        return request.parent_blocks + worker.held(digests.split(request.block_digests))


@dataclass
class FakeServices:
    """All of them, on loopback ports."""

    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    safety: FakeSafety = field(default_factory=FakeSafety)
    workers: list[FakeDecode] = field(default_factory=list)
    address: str = ""
    _servers: list[grpc.aio.Server] = field(default_factory=list)

    async def start(self, workers: int = 1) -> None:
        """Serve with that many decode workers."""
        server = grpc.aio.server(interceptors=[rpc.Boundary("fake")], options=rpc.OPTIONS)
        tokenizer_grpc.add_TokenizerServiceServicer_to_server(self.tokenizer, server)
        safety_grpc.add_SafetyServiceServicer_to_server(self.safety, server)
        self.router = FakeRouter(self.workers)
        router_grpc.add_RouterServiceServicer_to_server(self.router, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._servers.append(server)
        for number in range(workers):
            await self.add_worker(f"decode-{number}")

    async def add_worker(self, worker_id: str, script: Script | None = None, epoch: int = 1) -> FakeDecode:
        """Another worker."""
        worker = FakeDecode(worker_id, script or Script())
        worker.ref.epoch = epoch
        server = grpc.aio.server(interceptors=[rpc.Boundary("fake")], options=rpc.OPTIONS)
        decode_grpc.add_DecodeServiceServicer_to_server(worker, server)
        worker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._servers.append(server)
        self.workers.append(worker)
        return worker

    async def stop(self) -> None:
        """Stop at once."""
        for server in self._servers:
            await server.stop(None)
