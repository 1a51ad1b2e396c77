"""One sequence as the scheduler sees it: tokens known, tokens computed, blocks held."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import Enum, auto

from tidemill_common.tokens import pack


class SequenceState(Enum):
    """Where a sequence stands. All but WAITING and ENDED hold blocks."""

    WAITING = auto()
    IMPORTING = auto()
    RUNNING = auto()
    DRAINING = auto()
    ENDED = auto()


class SequenceKind(Enum):
    """What a sequence is for: a turn, a prompt computed for another worker, or a turn whose prompt another one computes."""

    GENERATE = auto()
    PREFILL = auto()
    REMOTE = auto()


class Sequence:
    """State of one sequence; only the scheduler changes what concerns blocks.

    Attributes:
        root: root of its digest chain.
        tokens: all known tokens, prompt first.
        prompt_length: tokens given.
        computed: leading tokens whose KV is in ``blocks``.
        blocks: block table.
        digests: digests of the leading blocks that are registered.
        registrable: False after a digest collision.
        cached_tokens: prompt tokens found in the cache at first admission; None before.
    """

    def __init__(self, root: bytes, tokens: Iterable[int], kind: SequenceKind = SequenceKind.GENERATE) -> None:
        self.root = root
        self.tokens = array("I", tokens)
        self.kind = kind
        self.state = SequenceState.WAITING
        self.prompt_length = len(self.tokens)
        self.computed = 0
        self.blocks: list[int] = []
        self.digests: list[bytes] = []
        self.registrable = True
        self.cached_tokens: int | None = None

    @property
    def remaining(self) -> int:
        """Known tokens without KV."""
        return len(self.tokens) - self.computed

    @property
    def preemptable(self) -> bool:
        """Whether its blocks may be taken: nobody reads or writes them from outside."""
        return self.state is SequenceState.RUNNING and self.kind is not SequenceKind.PREFILL

    def packed(self, start: int, stop: int) -> bytes:
        """Tokens [start, stop), packed little-endian uint32."""
        return pack(self.tokens[start:stop])
