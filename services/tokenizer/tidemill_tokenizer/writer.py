"""Collects what a renderer writes as pieces: text to encode, and ids that are known already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tidemill_tokenizer.canonical import scalar

Piece = str | tuple[int, ...]

WINDOW = 128
# Between a letter and a space that a letter follows, every pre-tokenizer of the table cuts, whatever stands around.
_SAFE_CUT = re.compile(r"[A-Za-z](?= [A-Za-z])")


class Writer:
    """Pieces in order. Text written in a row becomes one piece, since encoding it in parts gives other ids.

    Attributes:
        pieces: text and ids so far.
        pending: text after the last piece.
    """

    def __init__(self, specials: Mapping[str, int], pending: str = "") -> None:
        self.pieces: list[Piece] = []
        self.pending = pending
        self._specials = specials
        names = sorted(specials, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    def text(self, text: str) -> None:
        """Add text of a user, a tool or a model: nothing in it is special."""
        self.pending += scalar(text)

    def glue(self, text: str) -> None:
        """Add the template's own text, in which the names of added tokens are those tokens."""
        for part in self._split.split(text) if self._split else [text]:
            if part in self._specials:
                self.ids([self._specials[part]])
            else:
                self.pending += part

    def ids(self, ids: Iterable[int]) -> None:
        """Add ids as they are."""
        self.flush()
        self.pieces.append(tuple(ids))

    def flush(self) -> None:
        """End the piece of text: what follows is encoded apart from it."""
        if self.pending:
            self.pieces.append(self.pending)
        self.pending = ""

    def hold_tail(self) -> None:
        """Flush up to the last place where encoding is sure to cut; at most 128 characters stay pending.

        Where the last 128 characters have no such place, all is flushed, and what follows is encoded apart from it.
        """
        start = max(0, len(self.pending) - WINDOW)
        cut = start
        for found in _SAFE_CUT.finditer(self.pending, start):
            cut = found.end()
        if start and cut == start:
            cut = len(self.pending)
        rest = self.pending[cut:]
        self.pending = self.pending[:cut]
        self.flush()
        self.pending = rest
