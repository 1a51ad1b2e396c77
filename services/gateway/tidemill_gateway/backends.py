"""What the gateway asks of the other services, in its own terms. ``clients`` speaks to them over gRPC."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.items import Message, Reasoning, RenderItem, ToolCall
from tidemill_gateway.tools import FlatTool


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment, on the monotonic clock, at which a turn must have ended."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def left(self, most: float = float("inf")) -> float:
        """Seconds left, at most ``most``. Raises TidemillError(DEADLINE_EXCEEDED) when there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise TidemillError(Reason.DEADLINE_EXCEEDED, "the turn's time is over")
        return min(seconds, most)


@dataclass(frozen=True, slots=True)
class Hop:
    """Which process served one step of a turn, and how long that took there, in milliseconds."""

    service: str
    node: str
    node_type: str
    milliseconds: float
    pid: int

    def body(self) -> dict[str, Any]:
        """As clients read it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Packed ids to append, the render state after them, and the text that a safety check reads."""

    packed: bytes
    state: bytes
    text: str
    hop: Hop


@dataclass(frozen=True, slots=True)
class Preamble:
    """What stands before the items of a conversation: system text and tools."""

    instructions: str = ""
    tools: tuple[FlatTool, ...] = ()


class Direction(StrEnum):
    """Who wrote a text."""

    INPUT = "input"
    OUTPUT = "output"
    TOOL_ARGUMENTS = "tool_arguments"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a text may pass; ``rule`` names what refused it."""

    allowed: bool
    rule: str
    hop: Hop


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One life of a worker."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker and where it is reached."""

    id: WorkerId
    address: str
    block_size: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, as the router weighs it.

    Attributes:
        parent_digest: digest of the last full block of what is probably cached.
        parent_blocks: full blocks up to and with it.
        block_digests: digests of the full blocks after it.
        token_count: tokens in all.
        session: affinity key; may be empty.
    """

    parent_digest: bytes
    parent_blocks: int
    block_digests: Sequence[bytes]
    token_count: int
    session: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The router's choice. ``decode_blocks`` blocks of the prompt, counted from the first, lie on the decode worker."""

    decode: Worker
    decode_blocks: int
    prefill: WorkerId | None
    hop: Hop


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. Ids are packed; ``max_tokens`` of 0 computes the prompt only."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    end_token_ids: bytes = b""
    grammar: str = ""
    forced: bytes = b""


class Finish(StrEnum):
    """Why generation ended."""

    END = "end"
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Job:
    """What a decode worker is asked to generate: a prefix it holds, by digest, and the packed ids after it."""

    request_id: str
    root: bytes
    prefix_digest: bytes
    prefix_blocks: int
    packed: bytes
    sampling: Sampling
    prefill: WorkerId | None
    block_size: int
    resumed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens that were ready together. ``cached`` counts prompt tokens in the first chunk; ``finish`` is set in the last."""

    packed: bytes
    finish: Finish | None = None
    cached: int = 0
    hops: tuple[Hop, ...] = field(default=())


class Tokenizer(Protocol):
    """Renders items as token ids."""

    async def render(
        self, state: bytes, preamble: Preamble, items: Sequence[RenderItem], *, open_turn: bool, deadline: Deadline
    ) -> Rendered:
        """Ids of ``items`` after ``state``; ``preamble`` is read where the state is empty."""
        ...

    async def render_output(self, items: Sequence[Message | ToolCall | Reasoning], *, deadline: Deadline) -> bytes:
        """Packed ids that the model would have sampled for one turn's items, its end included."""
        ...


class Safety(Protocol):
    """Judges text."""

    async def check(self, context: str, text: str, direction: Direction, *, deadline: Deadline) -> Verdict:
        """Verdict on ``text`` that follows ``context``. Raises TidemillError(SAFETY_UNAVAILABLE) when there is none."""
        ...


class Router(Protocol):
    """Chooses workers."""

    async def route(self, prompt: Prompt, excluded: Sequence[WorkerId], *, deadline: Deadline) -> Placement:
        """A decode worker for ``prompt``, and a prefill worker where that pays."""
        ...


class Decoder(Protocol):
    """Generates on a worker."""

    def generate(self, worker: Worker, job: Job, *, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """Chunks of a turn; closing the iterator cancels it on the worker."""
        ...
