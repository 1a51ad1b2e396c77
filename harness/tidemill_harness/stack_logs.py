"""Logs of the local stack: one file a child, the last few starts kept, each bounded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

KEPT_STARTS = 3
MAX_BYTES = 16 << 20


def open_new(path: Path) -> int:
    """Move earlier logs one place on (``.1`` is the youngest) and open a new one; returns its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _shift(path)
    if path.exists() and path.stat().st_size:
        path.replace(_place(path, 1))
    return open_again(path)


def open_again(path: Path) -> int:
    """Open a log to append to it."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound(path: Path, limit: int = MAX_BYTES) -> None:
    """Where a log is larger than ``limit`` bytes, move its content one place on. Its writer appends, and so goes on at 0."""
    if path.exists() and path.stat().st_size > limit:
        _shift(path)
        shutil.copyfile(path, _place(path, 1))
        os.truncate(path, 0)


def last_line(path: Path) -> str:
    """The last line that is not empty; "" when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _shift(path: Path) -> None:
    for place in range(KEPT_STARTS - 1, 0, -1):
        if _place(path, place).exists():
            _place(path, place).replace(_place(path, place + 1))


def _place(path: Path, place: int) -> Path:
    return path.with_name(f"{path.name}.{place}")
