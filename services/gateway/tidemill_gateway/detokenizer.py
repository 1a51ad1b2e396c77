"""Token ids to text, one at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from tidemill_common.vocabulary import Vocabulary


class Detokenizer:
    """Decodes ids to UTF-8 text; bytes that form no character become U+FFFD, an unfinished character waits.

    End tokens and ids beyond the vocabulary have no text.
    """

    def __init__(self, vocabulary: Vocabulary, end_token_ids: Iterable[int]) -> None:
        self._bytes = vocabulary.token_bytes
        self._ends = frozenset(end_token_ids)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that is certain after ``token``."""
        if token in self._ends or not 0 <= token < len(self._bytes):
            return ""
        return self._decoder.decode(self._bytes[token])

    def finish(self) -> str:
        """Text of bytes that still waited."""
        return self._decoder.decode(b"", final=True)
