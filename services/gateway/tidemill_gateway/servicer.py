"""GatewayService: how the gateway is doing."""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidemill.gateway.v1 import gateway_service_pb2, gateway_service_pb2_grpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.conversation import Conversations
from tidemill_gateway.limits import Limits


class GatewayServicer(gateway_service_pb2_grpc.GatewayServiceServicer):
    """Counts what the gateway holds. ``model`` is set once it is known."""

    def __init__(self, limits: Limits, conversations: Conversations) -> None:
        self.limits = limits
        self.conversations = conversations
        self.model = ""

    async def GetStatus(  # noqa: N802 - the proto's name
        self,
        request: gateway_service_pb2.GetStatusRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> gateway_service_pb2.GetStatusResponse:
        """The counts now."""
        if not self.model:
            raise TidemillError(Reason.UNAVAILABLE, "the gateway is starting")
        return gateway_service_pb2.GetStatusResponse(
            connections=self.limits.connections,
            turns=self.limits.turns,
            conversations=self.conversations.conversations,
            conversation_bytes=self.conversations.bytes,
            model=self.model,
        )
