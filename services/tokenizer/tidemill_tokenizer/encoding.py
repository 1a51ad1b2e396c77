"""Text to token ids, exactly as the model's own tokenizer.json has it.

``load`` gives a tiktoken encoder where tiktoken provably and by test reproduces the model's merges, and the model's own
``tokenizers`` pipeline, about six times slower, where it does not. Both read text as text: a special token's name in it is
encoded as plain characters; special tokens enter only by id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import tiktoken
import tokenizers

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.vocabulary import Vocabulary, byte_alphabet
from tidemill_tokenizer import checks, pretokenizers
from tidemill_tokenizer.canonical import scalar

# fancy-regex's stack holds a million entries, one for each character of a stretch of white space; beyond it, it panics.
LONGEST_TEXT = 500_000


class Encoder(Protocol):
    """Text to ids.

    Attributes:
        name: "tiktoken" or "tokenizers".
        note: why the model is served through ``tokenizers``; empty with tiktoken.
        special_ids: ids of added tokens, by text.
    """

    name: str
    note: str
    special_ids: Mapping[str, int]

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``; nothing in it is special. Lone surrogates read as U+FFFD."""
        ...


class TokenizersEncoder:
    """The model's own pipeline without its added tokens, so that text never becomes one."""

    name = "tokenizers"

    def __init__(self, spec: Mapping[str, Any], note: str = "") -> None:
        self.note = note
        self.special_ids: Mapping[str, int] = _added(spec)
        self.vocab = _mergeable(spec)
        self.pipeline = tokenizers.Tokenizer.from_str(json.dumps(_without_added(spec, self.vocab)))

    def encode(self, text: str) -> list[int]:
        """See ``Encoder.encode``."""
        # The batch call releases the GIL, the single one does not.
        return list(self.pipeline.encode_batch_fast([scalar(text)], add_special_tokens=False)[0].ids)


class TiktokenEncoder:
    """tiktoken with the model's vocabulary as ranks; stretches that tiktoken cannot take go through ``fallback``."""

    name = "tiktoken"
    note = ""

    def __init__(self, spec: Mapping[str, Any], pattern: str, fallback: TokenizersEncoder) -> None:
        self.special_ids: Mapping[str, int] = fallback.special_ids
        ranks = _ranks(fallback.vocab)
        self._core = tiktoken.Encoding(
            "tidemill", pat_str=pattern, mergeable_ranks=ranks, special_tokens=dict(self.special_ids)
        )
        self._normalize: Callable[[str], str] | None = (
            tokenizers.normalizers.NFC().normalize_str if spec.get("normalizer") else None
        )
        self._unranked = _unranked_characters(ranks)
        self._fallback = fallback

    def encode(self, text: str) -> list[int]:
        """See ``Encoder.encode``."""
        if self._normalize and not text.isascii():
            text = self._normalize(scalar(text))
        # A byte without a token is dropped before merging, so its neighbours may merge; tiktoken has no such thing.
        if len(text) > LONGEST_TEXT or (self._unranked and self._unranked.search(text)):
            return self._fallback.encode(text)
        return self._core.encode_ordinary(text)


def load(directory: Path) -> tuple[Encoder, Vocabulary]:
    """Encoder and vocabulary of a model directory.

    Raises TidemillError(CONFIG) when tokenizer.json is missing, malformed or not of a BPE model.
    """
    path = directory / "tokenizer.json"
    spec = _read(path)
    try:
        vocabulary, fallback = Vocabulary.parse(spec), TokenizersEncoder(spec)
    except Exception as error:
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} is malformed: {error}") from error
    encoder = _tiktoken(spec, fallback, vocabulary)
    return encoder or fallback, vocabulary


def _tiktoken(spec: Mapping[str, Any], fallback: TokenizersEncoder, vocabulary: Vocabulary) -> TiktokenEncoder | None:
    """The tiktoken encoder; None where it would not be exact, and the fallback's note then says why."""
    pattern = pretokenizers.pattern(spec.get("pre_tokenizer"))
    fallback.note = checks.obstacle(spec, fallback.pipeline)
    if pattern is None:
        fallback.note = "its pre-tokenizer is not in the table of known ones"
    if pattern is None or fallback.note:
        return None
    encoder = TiktokenEncoder(spec, pattern, fallback)
    sample = checks.disagreement(encoder.encode, fallback.encode, vocabulary)
    fallback.note = "" if sample is None else f"tiktoken and tokenizers encode {sample!r} differently"
    return None if fallback.note else encoder


def _read(path: Path) -> dict[str, Any]:
    try:
        spec: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = spec["model"]["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} cannot be read: {error}") from error
    if kind != "BPE":
        raise TidemillError(Reason.CONFIG, f"{str(path)!r} has a {kind!r} model; only BPE is supported")
    return spec


def _added(spec: Mapping[str, Any]) -> dict[str, int]:
    return {token["content"]: int(token["id"]) for token in spec.get("added_tokens", [])}


def _without_added(spec: Mapping[str, Any], vocab: Mapping[str, int]) -> dict[str, Any]:
    return {**spec, "added_tokens": [], "post_processor": None, "model": {**spec["model"], "vocab": vocab}}


def _mergeable(spec: Mapping[str, Any]) -> dict[str, int]:
    """The vocabulary without added tokens, but for those that a merge makes or needs."""
    pairs = checks.merges(spec)
    merged = {left + right for left, right in pairs}.union(chain.from_iterable(pairs))
    added = _added(spec)
    return {text: token for text, token in spec["model"]["vocab"].items() if text not in added or text in merged}


def _ranks(vocab: Mapping[str, int]) -> dict[bytes, int]:
    alphabet = byte_alphabet()
    return {bytes([alphabet[char] for char in text]): token for text, token in vocab.items()}


def _unranked_characters(ranks: Mapping[bytes, int]) -> re.Pattern[str] | None:
    """Matches every character whose UTF-8 has a byte without a token; None where there is no such byte."""
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    spans = [span for byte in missing if (span := _characters(byte))]
    if not spans:
        return None
    return re.compile("[" + "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in spans) + "]")


def _characters(byte: int) -> tuple[int, int] | None:
    """First and last code point whose UTF-8 starts with ``byte``; None where no character does."""
    if byte < 0x80:
        return byte, byte
    for lead, bits, shift in ((0xF0, 3, 18), (0xE0, 4, 12), (0xC0, 5, 6)):
        if byte >= lead:
            first = (byte & ((1 << bits) - 1)) << shift
            return (first, min(first + (1 << shift) - 1, 0x10FFFF)) if 0xC2 <= byte <= 0xF4 else None
    return None
