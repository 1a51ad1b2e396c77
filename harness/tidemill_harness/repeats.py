"""Notices a model that makes the same call again and again."""

from __future__ import annotations

from tidemill_harness.items import ToolCall


class RepeatGuard:
    """Counts identical calls in a row.

    Attributes:
        allowed: identical calls in a row that run; 0 = no limit.
        refused: identical calls in a row that did not.
    """

    def __init__(self, allowed: int = 2) -> None:
        self.allowed = allowed
        self.refused = 0
        self._last = ""
        self._times = 0

    def admit(self, call: ToolCall) -> int:
        """0 when ``call`` may run, else how often in a row it was made."""
        signature = call.signature()
        self._times = self._times + 1 if signature == self._last else 1
        self._last = signature
        if not self.allowed or self._times <= self.allowed:
            self.refused = 0
            return 0
        self.refused += 1
        return self._times
