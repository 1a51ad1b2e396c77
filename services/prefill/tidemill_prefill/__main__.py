"""`python -m tidemill_prefill` serves until SIGTERM."""

from __future__ import annotations

from tidemill_common import server
from tidemill_prefill.config import Settings
from tidemill_prefill.service import build


def main() -> None:
    """Serve with settings from the environment."""
    server.run("prefill", Settings.read, lambda: build(Settings.read()))


if __name__ == "__main__":
    main()
