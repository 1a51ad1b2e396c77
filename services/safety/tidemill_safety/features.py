"""Hashed n-grams of a text: words, pairs of words, and runs of 5 bytes.

Each n-gram adds to one of 2**20 buckets (Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning", without
the sign, since the table is far larger than the vocabulary). Counts enter as log(1 + n), and a text's vector has length 1.
"""

from __future__ import annotations

import re
import zlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

BUCKET_BITS = 20
BUCKETS = 1 << BUCKET_BITS
GRAM_BYTES = 5
FORMAT = "words1-2 bytes5 log1p l2 20bit"

Indices: TypeAlias = npt.NDArray[np.uint32]
Values: TypeAlias = npt.NDArray[np.float32]

_WORD = re.compile(rb"[a-z0-9_'\x80-\xff]+")
_MIX = np.uint32(2654435761)
_PAIR = np.uint32(2246822519)
_FNV_PRIME = np.uint32(16777619)
_GRAM_SALT = np.uint32(0x5BD1E995)


def features(text: str) -> tuple[Indices, Values]:
    """Bucket indices, uint32 [n] ascending, and weights, float32 [n], of normalised ``text``; n is 0 for an empty one."""
    data = text.encode("utf-8", "replace")
    words = np.array([zlib.crc32(word) for word in _WORD.findall(data)], dtype=np.uint32)
    pairs = words[:-1] * _PAIR + words[1:]
    hashes = np.concatenate([words, pairs, _grams(data)])
    buckets, counts = np.unique((hashes * _MIX) >> np.uint32(32 - BUCKET_BITS), return_counts=True)
    values = np.log1p(counts).astype(np.float32)
    norm = float(np.sqrt(np.sum(values * values)))
    return buckets, values / np.float32(norm or 1.0)


def _grams(data: bytes) -> Indices:
    values = np.frombuffer(data, dtype=np.uint8).astype(np.uint32)
    count = max(0, len(data) - GRAM_BYTES + 1)
    hashes: Indices = np.zeros(count, dtype=np.uint32)
    for offset in range(GRAM_BYTES):
        hashes = (hashes * _FNV_PRIME) ^ values[offset : offset + count]
    return hashes * _GRAM_SALT
