"""Token ids to text, one at a time."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill_common.vocabulary import Vocabulary


class Detokenizer:
    """Decodes ids to UTF-8 text; bytes that form no character become U+FFFD, an unfinished character waits. End tokens have no text."""

    def __init__(self, vocabulary: Vocabulary, end_token_ids: Iterable[int]) -> None:
        raise NotImplementedError

    def push(self, token: int) -> str:
        """Text that is certain after ``token``."""
        raise NotImplementedError

    def finish(self) -> str:
        """Text of bytes that still waited."""
        raise NotImplementedError
