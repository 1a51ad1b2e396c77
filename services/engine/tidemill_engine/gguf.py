"""Reader of GGUF files over mmap: metadata, and tensors dequantised to numpy.

Format: github.com/ggml-org/ggml, docs/gguf.md (versions 2 and 3, little-endian); blocks: ggml-common.h and ggml-quants.c.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidemill_common.errors import Reason, TidemillError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockType:
    """One ggml tensor type that can be read.

    Attributes:
        name: as llama.cpp writes it.
        elements: values a block.
        size: bytes a block.
        decode: blocks (uint8 [n, size]) to values (float32 [n, elements]).
    """

    name: str
    elements: int
    size: int
    decode: Callable[[Bytes], Floats]


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte ``start`` of each block, float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """Low halves, then high halves: uint8 [n, k] to float32 [n, 2k]."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1).astype(np.float32)


def _f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32, copy=False)


def _f16(blocks: Bytes) -> Floats:
    return _half(blocks, 0)


def _bf16(blocks: Bytes) -> Floats:
    wide = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - np.float32(8))


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def _q6_k(blocks: Bytes) -> Floats:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32).reshape(-1, 2, 8, 1)
    shifts = np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    four = ((low >> shifts) & 0x0F).reshape(-1, 2, 4, 32)
    two = (high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)) & 0x03
    values = (four | (two << 4)).astype(np.float32) - np.float32(32)
    return _half(blocks, 208) * (values.reshape(-1, 2, 8, 16) * scales).reshape(-1, 256)


BLOCK_TYPES: Mapping[int, BlockType] = {
    0: BlockType("F32", 1, 4, _f32),
    1: BlockType("F16", 1, 2, _f16),
    2: BlockType("Q4_0", 32, 18, _q4_0),
    3: BlockType("Q4_1", 32, 20, _q4_1),
    8: BlockType("Q8_0", 32, 34, _q8_0),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    30: BlockType("BF16", 1, 2, _bf16),
}
_OTHER_TYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
    28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def supported_types() -> str:
    """Names of the tensor types that can be read, for messages."""
    return ", ".join(each.name for each in BLOCK_TYPES.values())


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    Attributes:
        name: as in the file.
        shape: outermost dimension first, as numpy has it.
        type_id: ggml type.
        offset: bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


class _Cursor:
    """Reads values in order. Raises ValueError past the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError(f"ends at byte {len(self.data)} where {size} more are promised at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.scalar("<Q")).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise ValueError(f"metadata type {kind} is unknown")
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if code := _SCALARS.get(kind):
            values: list[Any] = np.frombuffer(self.take(count * struct.calcsize(code)), _numpy_code(code)).tolist()
            return values
        return [self.value(kind) for _ in range(count)]


def _numpy_code(code: str) -> str:
    sizes = {
        "B": "u1",
        "b": "i1",
        "H": "u2",
        "h": "i2",
        "I": "u4",
        "i": "i4",
        "f": "f4",
        "?": "?",
        "Q": "u8",
        "q": "i8",
        "d": "f8",
    }
    return "<" + sizes[code[1]]


class GgufFile:
    """An open GGUF file.

    Attributes:
        path: the file.
        metadata: values by key; arrays are lists.
        tensors: where each tensor lies, by name, in the file's order.
    """

    def __init__(self, path: Path) -> None:
        """Open and parse ``path``. Raises TidemillError(MODEL_UNSUPPORTED) when it is no readable GGUF file."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise TidemillError(Reason.MODEL_UNSUPPORTED, f"{str(path)!r} can't be read: {error}") from error
        try:
            self.metadata, self.tensors = _parse(_Cursor(self._data))
        except (ValueError, struct.error) as error:
            self._data.close()
            raise TidemillError(Reason.MODEL_UNSUPPORTED, f"{str(path)!r} is no valid GGUF file: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._data.close()

    def unsupported(self) -> list[str]:
        """Names of the tensor types in the file that can't be read, sorted."""
        kinds = {info.type_id for info in self.tensors.values()} - set(BLOCK_TYPES)
        return sorted(_OTHER_TYPES.get(kind, f"type {kind}") for kind in kinds)

    def quantisation(self) -> str:
        """The type that most values of the file have, as llama.cpp names it."""
        counts: dict[int, int] = {}
        for info in self.tensors.values():
            counts[info.type_id] = counts.get(info.type_id, 0) + prod(info.shape)
        kind = max(counts, key=lambda each: counts[each], default=0)
        return BLOCK_TYPES[kind].name if kind in BLOCK_TYPES else _OTHER_TYPES.get(kind, f"type {kind}")

    def read(self, name: str) -> Floats:
        """The tensor ``name`` as float32, dequantised. Raises TidemillError(MODEL_UNSUPPORTED) when it can't."""
        kind, blocks = self._blocks(name)
        return kind.decode(blocks).reshape(self.tensors[name].shape)

    def raw(self, name: str) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32]:
        """The bits of a tensor of type F32, F16 or BF16, as unsigned integers of its width. Raises as ``read`` does."""
        kind, blocks = self._blocks(name)
        return blocks.view(f"<u{kind.size}").reshape(self.tensors[name].shape)

    def _blocks(self, name: str) -> tuple[BlockType, Bytes]:
        info = self.tensors[name]
        kind = BLOCK_TYPES.get(info.type_id)
        if kind is None:
            type_name = _OTHER_TYPES.get(info.type_id, f"type {info.type_id}")
            problem = f"tensor {name!r} has the type {type_name}; supported are {supported_types()}"
            raise TidemillError(Reason.MODEL_UNSUPPORTED, problem)
        count, rest = divmod(prod(info.shape), kind.elements)
        if rest or info.offset + count * kind.size > len(self._data):
            raise TidemillError(Reason.MODEL_UNSUPPORTED, f"tensor {name!r} of {str(self.path)!r} is cut short or misshapen")
        raw = np.frombuffer(self._data[info.offset : info.offset + count * kind.size], np.uint8)
        return kind, raw.reshape(count, kind.size)


def _parse(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if cursor.take(4) != MAGIC:
        raise ValueError(f"does not begin with {MAGIC!r}")
    if (version := cursor.scalar("<I")) not in VERSIONS:
        raise ValueError(f"has version {version}; supported are {VERSIONS}")
    tensor_count, key_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.scalar("<I"))
    found = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    if alignment <= 0:
        raise ValueError(f"general.alignment is {alignment}")
    start = -(-cursor.at // alignment) * alignment
    return metadata, {name: TensorInfo(name, shape, kind, start + offset) for name, shape, kind, offset in found}


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = cursor.text(), cursor.scalar("<I")
    if dimensions > _MAX_DIMS:
        raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(cursor.scalar("<Q") for _ in range(dimensions))
    return name, shape[::-1], cursor.scalar("<I"), cursor.scalar("<Q")
