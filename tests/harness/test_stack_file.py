from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill_common.errors import TidemillError
from tidemill_harness import stack_file
from tidemill_harness.stack_file import ServiceEntry, StackFile


def _stack(pid: int, state: str = "ready") -> StackFile:
    entry = ServiceEntry("decode", "decode-0", 7, "127.0.0.1:1", "127.0.0.1:2", "/logs/decode-0.log", 3, state)
    return StackFile(pid, "http://127.0.0.1:8080", "/keys/first-key", "smollm2", 1.5, (entry,))


def test_what_is_written_is_read_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    _stack(os.getpid()).write(path)
    assert stack_file.read(path) == _stack(os.getpid())
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["stack.json"]


def test_a_stack_whose_supervisor_is_gone_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    assert stack_file.read(path) is None
    _stack(2**22 + 1).write(path)
    assert stack_file.read(path) is None


def test_a_stack_is_ready_when_every_service_is() -> None:
    assert _stack(1).ready
    assert not _stack(1, "restarting").ready


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1, "services": [{"service": "x"}]}'])
def test_a_malformed_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stack.json"
    path.write_text(text)
    with pytest.raises(TidemillError, match=r"stack.json' is malformed"):
        stack_file.read(path)
