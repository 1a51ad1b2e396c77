"""PrefillService of the peers, with deadlines and catalogue errors."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator

import grpc.aio

from tidemill.common.v1 import common_pb2
from tidemill.prefill.v1 import prefill_service_pb2 as pb
from tidemill.prefill.v1 import prefill_service_pb2_grpc as pb_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.rpc import connect, mapped_errors
from tidemill_decode.pull import Done
from tidemill_engine.outputs import FirstToken, KvBlocks
from tidemill_engine.worker.membership import Peer

MAX_CHANNELS = 64
Part = KvBlocks | FirstToken | Done[common_pb2.Hop]


class PrefillClients:
    """One channel per prefill worker, the longest unused closed first."""

    def __init__(self) -> None:
        self._channels: OrderedDict[Peer, grpc.aio.Channel] = OrderedDict()

    async def prefill(self, peer: Peer, request: pb.PrefillRequest, timeout: float) -> AsyncGenerator[Part]:
        """What ``peer`` sends for ``request`` within ``timeout`` seconds.

        Raises TidemillError: the peer's own, KV_CORRUPT for KV of another layout, UNAVAILABLE when it can't be reached.
        """
        stub = pb_grpc.PrefillServiceStub(await self._channel(peer))
        call = stub.Prefill(request, timeout=timeout)
        try:
            with mapped_errors():
                async for response in call:
                    yield _part(response, request.fingerprint)
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _channel(self, peer: Peer) -> grpc.aio.Channel:
        channel = self._channels.setdefault(peer, connect(peer.address))
        self._channels.move_to_end(peer)
        if len(self._channels) > MAX_CHANNELS:
            _, oldest = self._channels.popitem(last=False)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await oldest.close()
        return channel


def _part(response: pb.PrefillResponse, fingerprint: str) -> Part:
    match response.WhichOneof("kind"):
        case "chunk":
            chunk = response.chunk
            if chunk.fingerprint != fingerprint or chunk.first_layer:
                found = f"{chunk.fingerprint!r} from layer {chunk.first_layer}"
                raise TidemillError(Reason.KV_CORRUPT, f"KV of {found} arrived, not all layers of {fingerprint!r}")
            return KvBlocks(chunk.first_block, chunk.token_count, chunk.data, tuple(chunk.checksums))
        case "first_token":
            return FirstToken(response.first_token.token_id, response.first_token.cached_tokens)
        case "done":
            return Done(response.done.hop)
        case other:
            raise TidemillError(Reason.INTERNAL, f"the prefill worker sent {other!r}, which is unknown here")
