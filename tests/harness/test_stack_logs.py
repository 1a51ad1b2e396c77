from __future__ import annotations

import os
from pathlib import Path

from tidemill_harness import stack_logs


def _start(path: Path, text: str) -> None:
    descriptor = stack_logs.open_new(path)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def test_each_start_has_its_log_and_the_last_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "decode.log"
    for n in range(stack_logs.KEPT_STARTS + 3):
        _start(path, f"start {n}\n")
    kept = [f.read_text() for f in (path, *(path.with_name(f"decode.log.{n}") for n in (1, 2, 3)))]
    assert kept == ["start 5\n", "start 4\n", "start 3\n", "start 2\n"]
    assert len(list(path.parent.iterdir())) == stack_logs.KEPT_STARTS + 1
    assert path.stat().st_mode & 0o077 == 0


def test_an_empty_log_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    _start(path, "")
    _start(path, "")
    assert [each.name for each in tmp_path.iterdir()] == ["x.log"]


def test_a_log_that_grows_is_cut_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    descriptor = stack_logs.open_new(path)
    os.write(descriptor, b"a" * 100)
    stack_logs.bound(path, 100)
    assert path.stat().st_size == 100
    os.write(descriptor, b"b")
    stack_logs.bound(path, 100)
    os.write(descriptor, b"c")
    os.close(descriptor)
    assert path.read_text() == "c"
    assert path.with_name("x.log.1").stat().st_size == 101


def test_the_last_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    assert stack_logs.last_line(path) == ""
    path.write_text("one\n" * 9000 + "two\n\n")
    assert stack_logs.last_line(path) == "two"
