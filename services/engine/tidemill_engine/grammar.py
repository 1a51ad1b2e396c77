"""Grammar masks with llguidance: what a sequence may emit next, so that a tool call always fits its schema."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import llguidance
import numpy as np
import torch
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.vocabulary import Vocabulary

Encode = Callable[[str], list[int]]


class _Tokens:
    """What llguidance wants to know of a tokenizer. Where a grammar leaves one text, it allows that text's encoding alone."""

    def __init__(self, vocabulary: Vocabulary, encode: Encode, end_token: int, size: int) -> None:
        self.eos_token_id = end_token
        self.bos_token_id = None
        # Embedding rows beyond the vocabulary are padding; an id without bytes is never allowed.
        self.tokens = [*vocabulary.token_bytes, *[b""] * size][:size]
        self.special_token_ids = sorted(vocabulary.control_ids)
        self._encode = encode
        self._single = {data: token for token, data in enumerate(self.tokens) if len(data) == 1}

    def __call__(self, text: bytes) -> list[int]:
        try:
            return self._encode(text.decode())
        except UnicodeDecodeError as error:
            head = text[: error.start].decode()
            return [*self._encode(head), *(self._single[bytes([b])] for b in text[error.start :] if bytes([b]) in self._single)]


class GrammarMatcher:
    """Where one sequence stands in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary_size: int) -> None:
        self._matcher = matcher
        self._size = vocabulary_size
        self._bits = allocate_token_bitmask(1, vocabulary_size)

    def allowed(self) -> torch.Tensor:
        """Bool [vocabulary]: tokens that may come next; only end tokens once the grammar is complete.

        Raises TidemillError(INVALID_TOOLS) when the grammar grew beyond llguidance's limits.
        """
        fill_next_token_bitmask(self._matcher, self._bits)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._size]
        return torch.from_numpy(bits.view(np.bool_))

    def accept(self, token: int) -> None:
        """Go on with ``token``. Raises TidemillError(INVALID_TOOLS) when the grammar does not allow it."""
        if not self._matcher.consume_token(token):
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            # The first line says what; the rest is the parser's own state.
            problem = self._matcher.get_error().split("\n", 1)[0]
            raise TidemillError(Reason.INVALID_TOOLS, f"grammar failed: {problem}", "tools")


class GrammarCompiler:
    """Compiles grammars, and keeps the latest ``capacity`` of them; any thread may use it.

    ``encode`` is the model's own encoding of text, without special tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encode: Encode,
        end_token_ids: Sequence[int],
        vocabulary_size: int,
        capacity: int = 64,
    ) -> None:
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(vocabulary, encode, end_token_ids[0], vocabulary_size)),
            eos_token=list(end_token_ids),
        )
        self._size = vocabulary_size
        self._capacity = capacity
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._compiled)

    def matcher(self, grammar: str) -> GrammarMatcher:
        """A matcher at the start of ``grammar`` (Lark). Raises TidemillError(INVALID_TOOLS) when it is malformed."""
        with self._lock:
            compiled = self._compiled.get(grammar)
            if compiled is not None:
                self._compiled.move_to_end(grammar)
                return GrammarMatcher(compiled.deep_copy(), self._size)
        compiled = self._compile(grammar)
        with self._lock:
            self._compiled[grammar] = compiled
            while len(self._compiled) > self._capacity:
                self._compiled.popitem(last=False)
            return GrammarMatcher(compiled.deep_copy(), self._size)

    def _compile(self, grammar: str) -> llguidance.LLMatcher:
        try:
            matcher = llguidance.LLMatcher(self._tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
        except ValueError as error:
            raise TidemillError(Reason.INVALID_TOOLS, f"grammar does not compile: {error}", "tools") from error
        if matcher.is_error():
            raise TidemillError(Reason.INVALID_TOOLS, f"grammar does not compile: {matcher.get_error()}", "tools")
        return matcher
