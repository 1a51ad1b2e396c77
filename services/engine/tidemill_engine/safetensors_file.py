"""Safetensors files, written tensor by tensor and read by header, so that a model larger than memory can be converted.

Format (github.com/huggingface/safetensors): little-endian uint64 header length, JSON header, then the tensors' bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill_common.errors import Reason, TidemillError

SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F64": 8,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
_MAX_HEADER = 100_000_000
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One tensor to write: its name, safetensors dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * SIZES[self.dtype]


def write(path: Path, plans: list[Plan], tensors: Iterable[npt.NDArray[Any]]) -> None:
    """Write ``tensors``, one per plan and in its order. Raises ValueError when a tensor has not the planned size."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for plan in plans:
        header[plan.name] = {"dtype": plan.dtype, "shape": list(plan.shape), "data_offsets": [at, at + plan.size]}  # type: ignore[dict-item]
        at += plan.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for plan, tensor in zip(plans, tensors, strict=True):
            if tensor.nbytes != plan.size:
                raise ValueError(f"tensor {plan.name!r} has {tensor.nbytes} bytes, planned are {plan.size}")
            file.write(np.ascontiguousarray(tensor).data)


def header(path: Path) -> Mapping[str, Any]:
    """Header of ``path`` without its ``__metadata__``. Raises TidemillError(MODEL_UNSUPPORTED) when it is malformed."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER:
                raise ValueError(f"has a header of {length} bytes")
            tensors: dict[str, Any] = json.loads(file.read(length))
        tensors.pop("__metadata__", None)
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
        if path.stat().st_size != 8 + length + end:
            raise ValueError(f"has {path.stat().st_size} bytes, its header promises {8 + length + end}")
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise TidemillError(Reason.MODEL_UNSUPPORTED, f"{str(path)!r} is no complete safetensors file: {error}") from error
    return tensors
