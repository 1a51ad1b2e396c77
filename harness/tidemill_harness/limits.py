"""Bounds of a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one task.

    Attributes:
        steps: model turns that may call tools; then one more is asked to answer; 0 = no limit.
        seconds: wall time; 0 = no limit.
        repeats: identical calls in a row that run; 0 = no limit.
    """

    steps: int = 20
    seconds: float = 0.0
    repeats: int = 2
