"""The registered workers: who they are, how busy, when last heard."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tidemill_common.errors import Reason, TidemillError

MAX_RETIRED = 4096


class Role(StrEnum):
    """What a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a worker is: sequences that run and wait, prompt tokens not yet computed, free and all blocks."""

    running: int = 0
    waiting: int = 0
    pending_prefill_tokens: int = 0
    free_blocks: int = 0
    total_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """What a worker says of itself.

    Attributes:
        worker_id: stable id.
        epoch: random number of this life, not 0.
        role: what it does.
        address: gRPC target, host:port.
        fingerprint: of its model, dtype and KV layout: the model's own, a slash, the rest.
        block_size: tokens per block.
        node_type: CPU generation of its host.
    """

    worker_id: str
    epoch: int
    role: Role
    address: str
    fingerprint: str
    block_size: int
    node_type: str

    def serves(self, model: str) -> bool:
        """Whether ``model``, a model's fingerprint, is what it runs; the empty one is any."""
        return not model or self.fingerprint.partition("/")[0] == model

    def check(self) -> None:
        """Raise TidemillError(INVALID_REQUEST) that names the field missing."""
        for name in ("worker_id", "epoch", "address", "fingerprint", "block_size"):
            if not getattr(self, name):
                raise TidemillError(Reason.INVALID_REQUEST, f"hello without {name}: {self!r}", name)


@dataclass(slots=True, eq=False)
class Registration:
    """One worker for as long as its stream lives.

    Attributes:
        about: what it said of itself.
        heard: time of its last message, seconds.
        load: its last report.
        draining: it takes no new work.
        ended: why it was dropped, or None while it lives.
        next_event: number that its next block event must have.
        assigned: (time, uncached tokens) of turns sent to it that its reports may not show yet.
    """

    about: Description
    heard: float
    load: Load = field(default_factory=Load)
    draining: bool = False
    ended: TidemillError | None = None
    next_event: int = 1
    assigned: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=1024))

    @property
    def worker_id(self) -> str:
        """The worker's id."""
        return self.about.worker_id

    def count_events(self, sequence: int, count: int) -> None:
        """Take ``count`` events that begin with number ``sequence``. Raises TidemillError(EVENT_GAP)."""
        if sequence != self.next_event:
            message = f"{self.worker_id}: expected block event {self.next_event}, got {sequence}"
            raise TidemillError(Reason.EVENT_GAP, message, "sequence")
        self.next_event += count

    def unreported(self, now: float, seconds: float) -> tuple[int, int]:
        """(turns, uncached tokens) sent to it within the last ``seconds``."""
        while self.assigned and self.assigned[0][0] <= now - seconds:
            self.assigned.popleft()
        return len(self.assigned), sum(tokens for _, tokens in self.assigned)


class Workers:
    """Registrations by worker id, at most ``max_workers``.

    Attributes:
        version: grows with each change of membership.
    """

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self.version = 0
        self._by_id: dict[str, Registration] = {}
        self._retired: OrderedDict[tuple[str, int], None] = OrderedDict()

    def __iter__(self) -> Iterator[Registration]:
        return iter(sorted(self._by_id.values(), key=lambda each: each.worker_id))

    def register(self, about: Description, now: float) -> Registration:
        """Add a worker; a new epoch takes the place of the old one.

        Raises:
            TidemillError: INVALID_REQUEST for an incomplete hello, an epoch that is registered already or was replaced;
                OVERLOADED when there are too many workers.
        """
        about.check()
        old = self._by_id.get(about.worker_id)
        if old and old.about.epoch == about.epoch:
            raise TidemillError(Reason.INVALID_REQUEST, f"{about.worker_id} is registered with this epoch already", "epoch")
        if (about.worker_id, about.epoch) in self._retired:
            raise TidemillError(Reason.INVALID_REQUEST, f"a newer {about.worker_id} took this one's place", "epoch")
        if old:
            self._retire(old)
        if len(self._by_id) >= self.max_workers:
            raise TidemillError(Reason.OVERLOADED, f"{self.max_workers} workers are registered already")
        registration = self._by_id[about.worker_id] = Registration(about, now)
        self.version += 1
        return registration

    def drop(self, registration: Registration, why: TidemillError) -> bool:
        """Remove a worker. False when it was gone already."""
        if registration.ended:
            return False
        registration.ended = why
        del self._by_id[registration.worker_id]
        self.version += 1
        return True

    def drain(self, registration: Registration) -> None:
        """Choose this worker no more."""
        registration.draining = True

    def silent(self, now: float, seconds: float) -> list[Registration]:
        """Workers that said nothing for ``seconds``."""
        return [each for each in self if each.heard <= now - seconds]

    def _retire(self, old: Registration) -> None:
        self.drop(old, TidemillError(Reason.WORKER_UNKNOWN, f"a newer {old.worker_id} took this one's place"))
        self._retired[old.worker_id, old.about.epoch] = None
        if len(self._retired) > MAX_RETIRED:
            self._retired.popitem(last=False)
