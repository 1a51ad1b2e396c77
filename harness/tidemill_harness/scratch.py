"""The private temporary folder of a session; those of sessions that died are removed by the next."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidemill_common import paths


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that only this user reads, gone after the block."""
    parent = paths.state_dir() / "tmp"
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in parent.iterdir():
        if not _alive(path.name.partition("-")[0]):
            shutil.rmtree(path, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
