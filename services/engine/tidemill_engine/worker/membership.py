"""The registered workers, as the routers tell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemill_common.errors import Reason, TidemillError


@dataclass(frozen=True, slots=True)
class Peer:
    """A registered worker.

    Attributes:
        worker_id: its id.
        epoch: number of its life.
        address: gRPC target, host:port.
    """

    worker_id: str
    epoch: int
    address: str


class Membership:
    """Peers by id and epoch, the union of what each router said last.

    What a router said stays valid while it is away: its outage ends nobody's work.
    """

    def __init__(self) -> None:
        self._by_router: dict[str, dict[tuple[str, int], Peer]] = {}

    def update(self, router: str, peers: Iterable[Peer]) -> None:
        """``router`` knows exactly ``peers`` now."""
        self._by_router[router] = {(peer.worker_id, peer.epoch): peer for peer in peers}

    def resolve(self, worker_id: str, epoch: int) -> Peer:
        """The peer of this id and epoch. Raises TidemillError(WORKER_UNKNOWN)."""
        for peers in self._by_router.values():
            if peer := peers.get((worker_id, epoch)):
                return peer
        raise TidemillError(Reason.WORKER_UNKNOWN, f"no router knows worker {worker_id!r} of epoch {epoch}")
