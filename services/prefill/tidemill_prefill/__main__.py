"""`python -m tidemill_prefill` serves until SIGTERM."""

from __future__ import annotations

import os

from tidemill_common import server
from tidemill_prefill.config import Settings
from tidemill_prefill.service import build


def main() -> None:
    """Serve with settings from the environment."""
    server.run("prefill", Settings.read, lambda: build(Settings.read()))
    # All is freed by now; the interpreter would spend seconds on taking torch's modules apart.
    os._exit(0)


if __name__ == "__main__":
    main()
