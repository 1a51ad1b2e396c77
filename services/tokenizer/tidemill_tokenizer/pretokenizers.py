"""Known pre-tokenizer configurations of tokenizer.json and the tiktoken pattern that splits exactly alike.

Sources: the regexes are those of the models' own tokenizer.json files. SmolLM2 splits digits off before GPT-2's regex runs, so
its one-pass pattern needs the branch ``\\s+(?=\\p{N})``: white space before a digit is the end of its own stretch there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LETTERS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+"

GPT2_PATTERN = rf"{_LETTERS}| ?\p{{N}}+|{_REST}|\s+(?!\S)|\s+"
SMOLLM2_PATTERN = rf"{_LETTERS}|\p{{N}}|{_REST}|\s+(?=\p{{N}})|\s+(?!\S)|\s+"

QWEN2_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KNOWN_REGEXES = frozenset({QWEN2_REGEX, LLAMA3_REGEX})


def pattern(pre_tokenizer: Mapping[str, Any] | None) -> str | None:
    """The tiktoken pattern equal to a ``pre_tokenizer`` of tokenizer.json; None when the table has none."""
    match _steps(pre_tokenizer):
        case [level] if _byte_level(level, use_regex=True):
            return GPT2_PATTERN
        case [{"type": "Digits", "individual_digits": True}, level] if _byte_level(level, use_regex=True):
            return SMOLLM2_PATTERN
        case [split, level] if _byte_level(level, use_regex=False):
            return _split_regex(split)
    return None


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if pre_tokenizer is None:
        return []
    return list(pre_tokenizer["pretokenizers"]) if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]


def _byte_level(step: Mapping[str, Any], use_regex: bool) -> bool:
    wanted = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}
    return all(step.get(key, True) == value for key, value in wanted.items())


def _split_regex(step: Mapping[str, Any]) -> str | None:
    regex = str(step.get("pattern", {}).get("Regex", ""))
    isolated = step.get("type") == "Split" and step.get("behavior") == "Isolated" and not step.get("invert", False)
    return regex if isolated and regex in KNOWN_REGEXES else None
