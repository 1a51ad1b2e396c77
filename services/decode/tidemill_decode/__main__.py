"""`python -m tidemill_decode` serves until SIGTERM."""

from __future__ import annotations

import os

from tidemill_common import server
from tidemill_decode.config import Settings
from tidemill_decode.service import build


def main() -> None:
    """Serve with settings from the environment."""
    server.run("decode", Settings.read, lambda: build(Settings.read()))
    # All is freed by now; the interpreter would spend seconds on taking torch's modules apart.
    os._exit(0)


if __name__ == "__main__":
    main()
