from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import gguf_files
from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.gguf import BLOCK_TYPES, GgufFile

_BY_NAME = {kind.name: kind for kind in BLOCK_TYPES.values()}


def _nibble(block: bytes, start: int, n: int) -> int:
    return block[start + n % 16] >> (4 * (n // 16)) & 15


def _half(block: bytes, at: int) -> float:
    return float(np.frombuffer(block[at : at + 2], "<f2")[0])


def _q6_k(block: bytes, n: int) -> float:
    """Written after the loops of dequantize_row_q6_K in ggml-quants.c."""
    half, rest = divmod(n, 128)
    quarter, lane = divmod(rest, 32)
    low = block[64 * half + lane + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
    high = block[128 + 32 * half + lane] >> (2 * quarter) & 3
    scale = np.frombuffer(block[192:208], np.int8)[8 * half + lane // 16 + 2 * quarter]
    return _half(block, 208) * float(scale) * ((low | high << 4) - 32)


_ORACLES = {
    "Q4_0": lambda block, n: _half(block, 0) * (_nibble(block, 2, n) - 8),
    "Q4_1": lambda block, n: _half(block, 0) * _nibble(block, 4, n) + _half(block, 2),
    "Q8_0": lambda block, n: _half(block, 0) * float(np.frombuffer(block[2:], np.int8)[n]),
    "Q6_K": _q6_k,
}


@pytest.mark.parametrize("name", sorted(_ORACLES))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_a_block_dequantises_to_its_formula(name: str, seed: int) -> None:
    kind = _BY_NAME[name]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (3, kind.size), np.uint8)
    halves = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q6_K": [208]}[name]
    for at in halves:
        blocks[:, at : at + 2] = random.normal(0, 1, (3, 1)).astype("<f2").view(np.uint8)
    expected = [[_ORACLES[name](block.tobytes(), n) for n in range(kind.elements)] for block in blocks]
    np.testing.assert_array_equal(kind.decode(blocks), np.array(expected, np.float32))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_plain_floats_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    values = np.array([[0.5, -2.0, 1.0], [3.0, 0.0, -0.25]], np.float32)
    raw = {
        "F32": values.tobytes(),
        "F16": values.astype("<f2").tobytes(),
        "BF16": (values.view("<u4") >> 16).astype("<u2").tobytes(),
    }[name]
    path = gguf_files.write(tmp_path / "m.gguf", {"general.architecture": "llama"}, {"t": (name, (2, 3), raw)})
    with GgufFile(path) as file:
        np.testing.assert_array_equal(file.read("t"), values)
        assert file.raw("t").tobytes() == raw


def test_metadata_of_every_kind_is_read(tmp_path: Path) -> None:
    metadata = {"text": "žlutý", "whole": 7, "real": 0.5, "flag": True, "texts": ["a", "", "č"], "ids": [1, -2, 3]}
    path = gguf_files.write(tmp_path / "m.gguf", metadata, {})
    with GgufFile(path) as file:
        assert file.metadata == metadata


def test_a_type_that_can_not_be_read_is_refused_by_name_with_what_is_supported(tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", {}, {"t": ("Q4_K", (256,), bytes(144))})
    with GgufFile(path) as file:
        assert file.unsupported() == ["Q4_K"]
        with pytest.raises(TidemillError, match=r"'t' has the type Q4_K; supported are F32, F16, Q4_0, Q4_1"):
            file.read("t")


@given(cut=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40)
def test_a_file_cut_anywhere_is_refused_or_read_never_misread(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = gguf_files.tiny(folder / "whole.gguf").read_bytes()
    path = folder / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(TidemillError) as caught, GgufFile(path) as file:
        for name in file.tensors:
            file.read(name)
    assert caught.value.reason is Reason.MODEL_UNSUPPORTED


def test_other_files_and_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(64))
    with pytest.raises(TidemillError, match="no valid GGUF file"):
        GgufFile(path)
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(64))
    with pytest.raises(TidemillError, match="version 1"):
        GgufFile(path)
    with pytest.raises(TidemillError, match="can't be read"):
        GgufFile(tmp_path / "missing.gguf")
