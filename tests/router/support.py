"""Workers, prompts and a router for tests."""

from __future__ import annotations

from tidemill_common.digests import block_digest
from tidemill_router.policy import Weights
from tidemill_router.routing import Limits, Router
from tidemill_router.workers import Description, Role

ROOT = b"r" * 16
MODEL = "0123abcd"
BLOCK = 16


def digests(count: int, branch: int = 0) -> tuple[bytes, ...]:
    """A chain of ``count`` blocks; each branch is its own."""
    chain, parent = [], ROOT
    for n in range(count):
        parent = block_digest(parent, bytes([branch, n % 256, n // 256]))
        chain.append(parent)
    return tuple(chain)


def about(worker_id: str = "decode-0", epoch: int = 1, role: Role = Role.DECODE, model: str = MODEL) -> Description:
    return Description(worker_id, epoch, role, f"{worker_id}:1", f"{model}/float32", BLOCK, "milan")


def router(**limits: float) -> Router:
    return Router(Limits(**limits), Weights())  # type: ignore[arg-type]
