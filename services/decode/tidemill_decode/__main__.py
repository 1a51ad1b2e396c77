"""`python -m tidemill_decode` serves until SIGTERM."""

from __future__ import annotations

from tidemill_common import server
from tidemill_decode.config import Settings
from tidemill_decode.service import build


def main() -> None:
    """Serve with settings from the environment."""
    server.run("decode", Settings.read, lambda: build(Settings.read()))


if __name__ == "__main__":
    main()
