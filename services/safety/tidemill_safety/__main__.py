"""``python -m tidemill_safety``."""

from __future__ import annotations

from tidemill_common import server
from tidemill_safety.config import SafetySettings
from tidemill_safety.service import SafetyService


def main() -> None:
    """Serve until SIGTERM."""
    server.run("safety", SafetySettings.read, lambda: SafetyService(SafetySettings.read()))


if __name__ == "__main__":
    main()
