"""Whether tiktoken reproduces a tokenizer.json: what rules it out, then a seeded comparison.

tiktoken merges any two neighbours whose concatenation is a token, lowest id first, and takes a whole piece that is a token
at once; ``tokenizers`` applies listed merges in their order. They agree when merges stand in the order of the ids they make,
and either each token has one merge and is reached by merging, or every possible split of it is listed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import tokenizers

from tidemill_common.vocabulary import Vocabulary, byte_alphabet

SEED = 20250101
SAMPLES = 3000

_TRICKY = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\x85", "1", "42", "\u0663", "\u00bd", "'s", "'LL", "'\u017f"]
_TRICKY += ["\u00e9", "e\u0301", "\u4e2d", "\U0001f469\u200d\U0001f680", "."]


def merges(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Merges of a tokenizer.json, which lists them as pairs or as "left right"."""
    listed = spec["model"].get("merges", [])
    pairs = [entry.split(" ", 1) for entry in listed] if listed and isinstance(listed[0], str) else listed
    return list(map(tuple, pairs))


def obstacle(spec: Mapping[str, Any], pipeline: tokenizers.Tokenizer) -> str:
    """Why tiktoken cannot reproduce this tokenizer, in words; empty when nothing is known against it."""
    return _unsupported(spec) or _unsound_merges(spec, pipeline)


def _unsupported(spec: Mapping[str, Any]) -> str:
    model = spec["model"]
    normalizer = spec.get("normalizer")
    if normalizer not in (None, {"type": "NFC"}):
        return f"its normalizer {normalizer.get('type')!r} is not supported"
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            return f"its model has the option {option}"
    vocab = model["vocab"]
    missing = [byte for char, byte in byte_alphabet().items() if char not in vocab]
    if any(0x80 <= byte < 0xC0 for byte in missing):
        return "a continuation byte of UTF-8 has no token"
    if missing and model.get("unk_token"):
        return "bytes without a token become its unknown token"
    return ""


def _unsound_merges(spec: Mapping[str, Any], pipeline: tokenizers.Tokenizer) -> str:
    vocab: Mapping[str, int] = spec["model"]["vocab"]
    alphabet = frozenset(byte_alphabet())
    listed = merges(spec)
    made = [vocab[left + right] for left, right in listed]
    if inversions := sum(second < first for first, second in pairwise(made)):
        return f"{inversions} merges stand out of the order of their ids"
    added = {token["content"] for token in spec.get("added_tokens", [])}
    if not alphabet.issuperset("".join(text for text in vocab if text not in added)):
        return "a token is not written in byte-level characters"
    whole = [text for text in vocab if text not in added and len(text) > 1]
    if len(set(made)) == len(made):
        return _unreached(whole, pipeline)
    return "" if _splits(whole, vocab) == len(listed) else "tokens have several merges, but not all that are possible"


def _unreached(texts: list[str], pipeline: tokenizers.Tokenizer) -> str:
    lost = sum(len(pipeline.model.tokenize(text)) != 1 for text in texts)
    return f"{lost} tokens are not reached by merging" if lost else ""


def _splits(texts: list[str], vocab: Mapping[str, int]) -> int:
    return sum(text[:cut] in vocab and text[cut:] in vocab for text in texts for cut in range(1, len(text)))


def disagreement(ours: Callable[[str], list[int]], theirs: Callable[[str], list[int]], vocabulary: Vocabulary) -> str | None:
    """The first of a seeded set of texts that the two encode differently; None when there is none."""
    return next((text for text in samples(vocabulary, SAMPLES) if ours(text) != theirs(text)), None)


def samples(vocabulary: Vocabulary, count: int) -> Iterator[str]:
    """Texts made of tokens, of code points of every script, and of what pre-tokenizers treat specially."""
    rng = random.Random(SEED)
    pieces: tuple[Callable[[], str], ...] = (
        lambda: rng.choice(vocabulary.token_bytes).decode("utf-8", "ignore"),
        lambda: rng.choice(_TRICKY),
        lambda: _code_point(rng),
    )
    for _ in range(count):
        yield "".join(rng.choice(pieces)() for _ in range(rng.randint(1, 12)))


def _code_point(rng: random.Random) -> str:
    code = rng.randrange(rng.choice((0x80, 0x800, 0x10000, 0x20000, 0x110000)))
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
