"""A small writer of GGUF files: an oracle for the reader, and stand-in models small enough to convert in a test."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_common.vocabulary import byte_alphabet

TYPE_IDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q4_K": 12, "Q8_0": 8, "Q6_K": 14, "BF16": 30}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
Tensor = tuple[str, tuple[int, ...], bytes]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kind, encode = (8, _text) if isinstance(value[0], str) else (5, lambda each: struct.pack("<i", each))
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(encode(each) for each in value)


def write(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Write ``tensors`` (type name, shape, bytes) by name."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        head += _text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape[::-1])
        head += struct.pack("<IQ", TYPE_IDS[kind], len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


def metadata(**changed: Any) -> dict[str, Any]:
    """Metadata of a Llama of 2 layers, 2 heads of 4, 1 KV head, hidden 8, with a byte vocabulary; keys' dots as ``__``."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet(), "ab"]
    architecture = changed.get("general__architecture", "llama")
    base = {
        "general.architecture": "llama",
        f"{architecture}.block_count": 2,
        f"{architecture}.context_length": 64,
        f"{architecture}.embedding_length": 8,
        f"{architecture}.feed_forward_length": 16,
        f"{architecture}.attention.head_count": 2,
        f"{architecture}.attention.head_count_kv": 1,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 100000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    merged = base | {key.replace("__", "."): value for key, value in changed.items()}
    return {key: value for key, value in merged.items() if value is not None}


def tensors(seed: int = 0) -> dict[str, Tensor]:
    """Float32 weights for ``metadata``."""
    random = np.random.default_rng(seed)
    vocabulary = len(metadata()["tokenizer.ggml.tokens"])
    shapes = {"token_embd.weight": (vocabulary, 8), "output_norm.weight": (8,)}
    for layer in range(2):
        parts = {
            "attn_norm": (8,),
            "ffn_norm": (8,),
            "attn_q": (8, 8),
            "attn_k": (4, 8),
            "attn_v": (4, 8),
            "attn_output": (8, 8),
        }
        parts |= {"ffn_gate": (16, 8), "ffn_up": (16, 8), "ffn_down": (8, 16)}
        shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in parts.items()}
    return {name: ("F32", shape, random.normal(0, 0.3, shape).astype("<f4").tobytes()) for name, shape in shapes.items()}


def tiny(path: Path, seed: int = 0, **changed: Any) -> Path:
    """A whole stand-in model."""
    return write(path, metadata(**changed), tensors(seed))
