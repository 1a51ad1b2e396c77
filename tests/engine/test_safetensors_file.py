from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tidemill_common.errors import TidemillError
from tidemill_engine import safetensors_file
from tidemill_engine.safetensors_file import Plan


def test_what_is_written_is_what_the_safetensors_package_reads(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1.5], np.float16)
    path = tmp_path / "m.safetensors"
    safetensors_file.write(path, [Plan("a", "F32", (2, 3)), Plan("b", "F16", (1,))], [a, b.view(np.uint16)])
    read = load_file(path)
    np.testing.assert_array_equal(read["a"], a)
    np.testing.assert_array_equal(read["b"], b)
    assert set(safetensors_file.header(path)) == {"a", "b"}


def test_a_tensor_of_another_size_than_planned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' has 4 bytes, planned are 8"):
        safetensors_file.write(tmp_path / "m", [Plan("a", "F32", (2,))], [np.zeros(1, np.float32)])


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_a_file_cut_short_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "m.safetensors"
    safetensors_file.write(path, [Plan("a", "F32", (2,))], [np.zeros(2, np.float32)])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TidemillError, match=r"m.safetensors' is no complete safetensors file"):
        safetensors_file.header(path)
