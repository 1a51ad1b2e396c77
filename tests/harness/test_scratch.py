from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common import paths
from tidemill_harness.scratch import scratch_folder


def test_a_folder_goes_with_its_session_and_those_of_dead_ones_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stale = paths.state_dir() / "tmp" / "999999999-dead"
    stale.mkdir(parents=True)
    with scratch_folder() as folder:
        (folder / "file").write_text("x")
        assert folder.stat().st_mode & 0o777 == 0o700
        with scratch_folder() as other:
            assert other != folder and folder.exists()
        assert not stale.exists()
    assert not list((paths.state_dir() / "tmp").iterdir())
