"""The verdict on a text: deny rules over all of it, the classifier over overlapping windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemill_safety.classifier import Classifier
from tidemill_safety.normalise import normalise, normalise_command
from tidemill_safety.rules import Direction, Rule, RuleSet

WINDOW_CHARS = 500
OVERLAP_CHARS = 150
CLASSIFIER = "classifier"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may happen to a text.

    Attributes:
        allowed: whether it may pass.
        rule: id of the rule that refused, or ``classifier``; empty when allowed.
        score: highest probability of any window that it is unsafe, in [0, 1].
    """

    allowed: bool
    rule: str
    score: float


class Policy:
    """Deny rules and classifier together."""

    def __init__(self, rules: Sequence[Rule], classifier: Classifier, threshold: float | None = None) -> None:
        """``threshold`` in (0, 1] replaces the classifier's own."""
        self._rules = {way: RuleSet([rule for rule in rules if way in rule.directions]) for way in Direction}
        self._classifier = classifier
        self._threshold = threshold or classifier.header.threshold

    def check(self, context: str, text: str, direction: Direction) -> Verdict:
        """Judge ``text`` after ``context``, the end of what stands before it.

        A finding counts when it reaches into ``text``, so that a payload split between the two is seen and one that stands in
        the context alone isn't held against the text.
        """
        spell = normalise_command if direction is Direction.TOOL_ARGUMENTS else normalise
        whole = spell(context + text)
        start = _common_length(spell(context), whole)
        rule = self._rules[direction].first_match(whole, start)
        score = max((self._classifier.score(window) for window in windows(whole, start)), default=0.0)
        if rule is not None:
            return Verdict(False, rule.id, score)
        refused = score >= self._threshold
        return Verdict(not refused, CLASSIFIER if refused else "", score)


def windows(text: str, start: int) -> Iterator[str]:
    """Overlapping windows over ``text[start:]``; the first one also shows the end of what stands before ``start``."""
    begin = max(0, start - OVERLAP_CHARS)
    while start < len(text):
        end = begin + WINDOW_CHARS
        yield text[begin:end]
        if end >= len(text):
            return
        begin = end - OVERLAP_CHARS


def _common_length(before: str, whole: str) -> int:
    if whole.startswith(before):
        return len(before)
    return next((n for n, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), min(len(before), len(whole)))
