"""Token ids to bytes, read from a model directory's tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte value, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


@dataclass(frozen=True)
class Vocabulary:
    """Bytes of every token.

    Attributes:
        token_bytes: bytes by id; a special token's are its text; b"" where an id has none.
        special_ids: ids of added tokens, by text.
        control_ids: those of them that are no text, such as <|im_end|>; others, such as Qwen's <tool_call>, are text that
            models write with one token.
    """

    token_bytes: tuple[bytes, ...]
    special_ids: Mapping[str, int]
    control_ids: frozenset[int] = frozenset()

    def decode(self, ids: Iterable[int]) -> bytes:
        """Bytes of ``ids``; ids beyond the vocabulary add nothing."""
        size = len(self.token_bytes)
        return b"".join(self.token_bytes[token] for token in ids if token < size)

    @classmethod
    def load(cls, directory: Path) -> Vocabulary:
        """Read ``directory``/tokenizer.json. Raises OSError or ValueError."""
        return cls.parse(json.loads((directory / "tokenizer.json").read_text(encoding="utf-8")))

    @classmethod
    def parse(cls, tokenizer: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary of a parsed tokenizer.json."""
        added = {token["content"]: int(token["id"]) for token in tokenizer.get("added_tokens", [])}
        vocab: dict[str, int] = tokenizer["model"]["vocab"]
        table = [b""] * (1 + max([*vocab.values(), *added.values()]))
        to_bytes = _byte_fallback if tokenizer["model"].get("byte_fallback") else _byte_level()
        for text, token in vocab.items():
            table[token] = to_bytes(text)
        for text, token in added.items():
            table[token] = text.encode()
        control = frozenset(int(token["id"]) for token in tokenizer.get("added_tokens", []) if token.get("special"))
        return cls(tuple(table), added, control)


class _byte_level:  # noqa: N801 - used as a function
    def __init__(self) -> None:
        self.alphabet = byte_alphabet()

    def __call__(self, text: str) -> bytes:
        try:
            return bytes([self.alphabet[char] for char in text])
        except KeyError:
            return text.encode()


def _byte_fallback(text: str) -> bytes:
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes([int(text[3:5], 16)])
    return text.replace("▁", " ").encode()
