"""Messages of the proto to the core and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import grpc.aio

from tidemill.tokenizer.v1 import tokenizer_service_pb2 as pb
from tidemill.tokenizer.v1 import tokenizer_service_pb2_grpc as pb_grpc
from tidemill_common import tokens
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.telemetry import Identity
from tidemill_tokenizer.config import TokenizerSettings
from tidemill_tokenizer.items import Item, Message, ModelOutput, Reasoning, Tool, ToolCall, ToolList, ToolOutput
from tidemill_tokenizer.pool import Pool
from tidemill_tokenizer.renderer import Renderer

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]
_ROLES = ("system", "developer", "user", "assistant")


class TokenizerServicer(pb_grpc.TokenizerServiceServicer):
    """TokenizerService for one model."""

    def __init__(self, settings: TokenizerSettings, profile: ModelProfile, renderer: Renderer) -> None:
        self.settings = settings
        self.renderer = renderer
        self.pool = Pool(settings.threads, settings.waiting)
        self.identity = Identity("tokenizer", settings.node)
        self.model = describe(profile, renderer, settings.context_length)

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:  # noqa: N802 - proto
        """The served model's text side."""
        return self.model

    async def Render(self, request: pb.RenderRequest, context: Context) -> pb.RenderResponse:  # noqa: N802 - proto
        """Ids of new items."""
        started = time.monotonic()
        tools, items = read_tools(request.tools), read_items(request.items)

        def job() -> pb.RenderResponse:
            rendered = self.renderer.render(request.state, request.instructions, tools, items, request.open_turn)
            return pb.RenderResponse(token_ids=tokens.pack(rendered.ids), state=rendered.state, text=rendered.text)

        response = await self._run(request.ByteSize(), job)
        response.hop.CopyFrom(self.identity.hop(started))
        return response

    async def RenderOutput(self, request: pb.RenderOutputRequest, context: Context) -> pb.RenderOutputResponse:  # noqa: N802 - proto
        """Ids of one turn's output items."""
        items = read_items(request.items)

        def job() -> pb.RenderOutputResponse:
            return pb.RenderOutputResponse(token_ids=tokens.pack(self.renderer.render_output(items)))

        return await self._run(request.ByteSize(), job)

    async def _run(self, size: int, job: Callable[[], T]) -> T:
        if size > self.settings.max_bytes:
            raise TidemillError(
                Reason.REQUEST_TOO_LARGE,
                f"the request has {size} bytes, more than the {self.settings.max_bytes} of TIDEMILL_TOKENIZER_MAX_BYTES",
                "input",
            )
        return job() if size <= self.settings.inline_bytes else await self.pool.run(job)


class TokenizerService:
    """The service in its process; see ``tidemill_common.server.Service``."""

    def __init__(self, settings: TokenizerSettings) -> None:
        """Load the model. Raises TidemillError(CONFIG)."""
        profile = ModelProfile.load(settings.model_dir)
        self.servicer = TokenizerServicer(settings, profile, Renderer.load(settings.model_dir))

    def attach(self, server: grpc.aio.Server) -> list[str]:
        """Add the servicer."""
        pb_grpc.add_TokenizerServiceServicer_to_server(self.servicer, server)
        return [pb.DESCRIPTOR.services_by_name["TokenizerService"].full_name]

    async def start(self, address: str) -> dict[str, object]:
        """Ready at once; the announcement says which encoder serves."""
        return {"encoder": self.servicer.renderer.encoder.name, "delta_tokenization": self.servicer.renderer.delta}

    async def drain(self) -> None:
        """Nothing to do: calls are short."""

    async def stop(self) -> None:
        """Free the threads."""
        self.servicer.pool.close()


def describe(profile: ModelProfile, renderer: Renderer, context_length: int) -> pb.GetModelResponse:
    """The model as the proto has it; ``context_length`` 0 means its own."""
    syntax = renderer.family.call_syntax
    thinking = renderer.family.options.thinking
    return pb.GetModelResponse(
        model=profile.name,
        fingerprint=profile.fingerprint,
        family=profile.family,
        context_length=context_length or profile.context_length,
        end_token_ids=tokens.pack(profile.end_token_ids),
        tool_call_syntax=pb.ToolCallSyntax(
            begin=syntax.begin, end=syntax.end, name_key=syntax.name_key, arguments_key=syntax.arguments_key
        ),
        thinking_begin="<think>" if thinking else "",
        thinking_end="</think>" if thinking else "",
        delta_tokenization=renderer.delta,
        template_difference=renderer.difference,
        require_tool_first=profile.require_tool_first,
    )


def read_tools(tools: Iterable[pb.Tool]) -> tuple[Tool, ...]:
    """Tools of the core."""
    return tuple(Tool(tool.name, tool.description, tool.parameters_json) for tool in tools)


def read_items(items: Iterable[pb.Item]) -> tuple[Item, ...]:
    """Items of the core. Raises TidemillError(INVALID_REQUEST) that names the item at fault."""
    return tuple(_read_item(index, item) for index, item in enumerate(items))


def _read_item(index: int, item: pb.Item) -> Item:
    match item.WhichOneof("kind"):
        case "message" if item.message.role in _ROLES:
            return Message(item.message.role, item.message.text)  # type: ignore[arg-type]
        case "message":
            raise _wrong(index, f"role {item.message.role!r} is none of {', '.join(_ROLES)}")
        case "tool_call":
            return ToolCall(item.tool_call.name, item.tool_call.arguments)
        case "tool_output":
            return ToolOutput(item.tool_output.output)
        case "tool_list":
            return ToolList(read_tools(item.tool_list.tools))
        case "reasoning":
            return Reasoning(item.reasoning.text)
        case "model_output":
            return ModelOutput(_read_ids(index, item.model_output.token_ids))
    raise _wrong(index, "has no kind")


def _read_ids(index: int, data: bytes) -> tuple[int, ...]:
    try:
        return tuple(tokens.unpack(data))
    except ValueError as error:
        raise _wrong(index, f"packed ids have {len(data)} bytes, no multiple of {tokens.TOKEN_BYTES}") from error


def _wrong(index: int, problem: str) -> TidemillError:
    return TidemillError(Reason.INVALID_REQUEST, f"item {index}: {problem}", f"items[{index}]")
