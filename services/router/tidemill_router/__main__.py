"""`python -m tidemill_router` serves until SIGTERM."""

from __future__ import annotations

from tidemill_common import server
from tidemill_router.config import Settings
from tidemill_router.service import RouterProcess


def main() -> None:
    """Serve with settings from the environment."""
    server.run("router", Settings.read, lambda: RouterProcess(Settings.read()))


if __name__ == "__main__":
    main()
