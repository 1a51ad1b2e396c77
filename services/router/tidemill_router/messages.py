"""Router messages to the core's values and back."""

from __future__ import annotations

from tidemill.common.v1 import common_pb2
from tidemill.router.v1 import router_service_pb2 as pb
from tidemill_common.digests import DIGEST_BYTES, split
from tidemill_common.errors import Reason, TidemillError
from tidemill_router.index import Chain
from tidemill_router.routing import Prompt
from tidemill_router.workers import Description, Load, Registration, Role

ROLES = {pb.ROLE_PREFILL: Role.PREFILL, pb.ROLE_DECODE: Role.DECODE}
ROLE_NUMBERS = {role: number for number, role in ROLES.items()}


def description(worker: pb.Worker) -> Description:
    """What a hello says. Raises TidemillError(INVALID_REQUEST) for an unknown role."""
    role = ROLES.get(worker.role)
    if role is None:
        raise TidemillError(Reason.INVALID_REQUEST, f"unknown role {worker.role!r}", "role")
    return Description(
        worker_id=worker.ref.worker_id,
        epoch=worker.ref.epoch,
        role=role,
        address=worker.address,
        fingerprint=worker.fingerprint,
        block_size=worker.block_size,
        node_type=worker.node_type,
    )


def load(message: pb.Load) -> Load:
    """A load report."""
    return Load(
        running=message.running,
        waiting=message.waiting,
        pending_prefill_tokens=message.pending_prefill_tokens,
        free_blocks=message.free_blocks,
        total_blocks=message.total_blocks,
    )


def worker(registration: Registration) -> pb.Worker:
    """A registered worker as callers see it."""
    about, now = registration.about, registration.load
    return pb.Worker(
        ref=common_pb2.WorkerRef(worker_id=about.worker_id, epoch=about.epoch),
        role=ROLE_NUMBERS[about.role],
        address=about.address,
        fingerprint=about.fingerprint,
        block_size=about.block_size,
        node_type=about.node_type,
        load=pb.Load(
            running=now.running,
            waiting=now.waiting,
            pending_prefill_tokens=now.pending_prefill_tokens,
            free_blocks=now.free_blocks,
            total_blocks=now.total_blocks,
        ),
    )


def prompt(request: pb.RouteRequest) -> Prompt:
    """The prompt of a turn. Raises TidemillError(INVALID_REQUEST) for malformed digests or counts."""
    digests = unpack_digests(request.block_digests, "block_digests")
    if len(request.parent_digest) != DIGEST_BYTES:
        raise TidemillError(Reason.INVALID_REQUEST, f"digest of {len(request.parent_digest)} bytes", "parent_digest")
    if request.token_count < request.parent_blocks + len(digests):
        raise TidemillError(Reason.INVALID_REQUEST, f"{request.token_count} tokens are fewer than blocks", "token_count")
    return Prompt(
        chain=Chain(request.parent_digest, request.parent_blocks, digests),
        tokens=request.token_count,
        model=request.model_fingerprint,
        excluded=frozenset((ref.worker_id, ref.epoch) for ref in request.excluded),
        session=request.session,
    )


def unpack_digests(packed: bytes, param: str) -> tuple[bytes, ...]:
    """Digests of a packed string. Raises TidemillError(INVALID_REQUEST) that names ``param``."""
    try:
        return tuple(split(packed))
    except ValueError as error:
        raise TidemillError(Reason.INVALID_REQUEST, str(error), param) from error
