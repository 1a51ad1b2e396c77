"""Stop strings over tokens: what may be emitted, and when generation ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill_common.vocabulary import Vocabulary


class StopMatcher:
    """Finds the first of several strings in the bytes of a token stream.

    Tokens that may belong to a stop string are held back until it is whole or ruled out. A token that begins before the string
    but carries its first bytes is emitted: the reader cuts its text there.
    """

    def __init__(self, stop: Iterable[str], vocabulary: Vocabulary) -> None:
        self._stops = tuple(text.encode() for text in stop if text)
        self._vocabulary = vocabulary
        self._text = b""  # bytes that may still begin a stop string
        self._held: list[tuple[int, int]] = []  # (token, where its bytes begin in _text; may be negative)

    def prime(self, tokens: Sequence[int]) -> None:
        """Take in tokens that were emitted already."""
        for token in tokens:
            self.push(token)
        self._held.clear()

    def push(self, token: int) -> tuple[list[int], bool]:
        """Take in one token. Returns the tokens to emit now, and whether a stop string is complete."""
        start = len(self._text)
        self._text += self._vocabulary.decode([token])
        self._held.append((token, start))
        found = [place for stop in self._stops if (place := self._text.find(stop)) >= 0]
        if found:
            return [token for token, begins in self._held if begins < min(found)], True
        safe = len(self._text) - self._suspect_length()
        ends = [begins for _, begins in self._held[1:]] + [len(self._text)]
        count = sum(end <= safe for end in ends)
        released = [token for token, _ in self._held[:count]]
        self._held = [(token, begins - safe) for token, begins in self._held[count:]]
        self._text = self._text[safe:]
        return released, False

    def flush(self) -> list[int]:
        """The tokens held back, when generation ends otherwise."""
        held, self._held = [token for token, _ in self._held], []
        return held

    def _suspect_length(self) -> int:
        longest = max((len(stop) for stop in self._stops), default=1)
        for length in range(min(longest - 1, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stops):
                return length
        return 0
