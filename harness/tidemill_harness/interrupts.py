"""Why a task ends without an answer, other than by a failure of the catalogue.

Interrupt
├── StepLimitReached    calls went on although the model was told to answer
├── TimeLimitReached    the task's wall-time limit passed
└── NoAnswer            the model ended its turn without text, twice
"""

from __future__ import annotations


class Interrupt(Exception):
    """A task that ended without an answer. ``str()`` is the sentence that the user reads."""


class StepLimitReached(Interrupt):
    """The model called tools even when asked to answer."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"After {steps} steps the model called tools instead of answering; raise --max-steps or ask for less.")


class TimeLimitReached(Interrupt):
    """The wall-time limit passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"No answer within {seconds:g} s; raise --timeout or ask for less.")


class NoAnswer(Interrupt):
    """The model's turn had neither text nor calls, twice."""

    def __init__(self, incomplete: str) -> None:
        why = f" (its output was cut: {incomplete})" if incomplete else ""
        super().__init__(f"The model gave no answer{why}; word the task differently, or serve a better model.")
