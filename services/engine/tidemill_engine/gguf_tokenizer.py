"""Tokenizer of a GGUF file as Hugging Face's tokenizer.json.

GGUF names its pre-tokenizer (``tokenizer.ggml.pre``) and leaves its pattern to the reader. The table here holds what the
models' own tokenizer.json have; an unknown name is refused, since a near miss would split text wrongly without a sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_engine.model_check import refused

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


PRE_TOKENIZERS: Mapping[str, dict[str, Any]] = {
    "smollm": _sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)),
    "gpt-2": _byte_level(use_regex=True),
    "qwen2": _sequence(_split(_QWEN2), _byte_level(use_regex=False)),
    "llama-bpe": _sequence(_split(_LLAMA3), _byte_level(use_regex=False)),
}
_NORMALIZERS = {"qwen2": {"type": "NFC"}}
_IGNORE_MERGES = {"llama-bpe"}


def check(metadata: Mapping[str, Any]) -> None:
    """Raise TidemillError(MODEL_UNSUPPORTED) that names the tokenizer when it can't be converted."""
    if (model := metadata.get("tokenizer.ggml.model")) != "gpt2":
        raise refused(f"the GGUF tokenizer {model!r} is not supported; byte-level BPE ('gpt2') is")
    if (pre := metadata.get("tokenizer.ggml.pre")) not in PRE_TOKENIZERS:
        raise refused(f"the GGUF pre-tokenizer {pre!r} is not supported; supported are {sorted(PRE_TOKENIZERS)}")


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Content of tokenizer.json. Raises TidemillError(MODEL_UNSUPPORTED) for a tokenizer that can't be converted."""
    check(metadata)
    pre = metadata["tokenizer.ggml.pre"]
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(token, text, kind == _CONTROL)
            for token, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": _NORMALIZERS.get(pre),
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in _IGNORE_MERGES,
            "vocab": {text: token for token, text in enumerate(tokens) if kinds[token] != _UNUSED},
            "merges": [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def _added(token: int, text: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": text, **flags, "special": special}


def tokenizer_config(metadata: Mapping[str, Any], context_length: int) -> dict[str, Any]:
    """Content of tokenizer_config.json; the chat template lies in a file of its own."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    ids = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    named = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in ids.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        **{name: tokens[token] for name, token in named.items() if token is not None},
    }
