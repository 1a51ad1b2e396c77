"""``python -m tidemill_gateway``: serve until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio

import uvloop

from tidemill_common import server
from tidemill_gateway.config import GatewaySettings
from tidemill_gateway.service import GatewayService


def main() -> None:
    """Serve with the settings of the environment."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    server.run("gateway", GatewaySettings.read, lambda: GatewayService(GatewaySettings.read()))


if __name__ == "__main__":
    main()
