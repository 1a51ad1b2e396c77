from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidemill_common import paths


def test_folders_follow_the_xdg_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable))
    assert paths.models_dir() == tmp_path / "DATA/tidemill/models"
    assert paths.keys_file() == tmp_path / "CONFIG/tidemill/keys.json"
    assert paths.first_key_file().parent == paths.digest_secret_file().parent == tmp_path / "CONFIG/tidemill"
    assert paths.store_file().parent == paths.stack_file().parent == paths.logs_dir().parent == tmp_path / "STATE/tidemill"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_an_empty_or_relative_variable_reads_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", value)
    assert paths.data_dir() == tmp_path / ".local/share/tidemill"


def test_a_private_file_is_written_whole_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    paths.write_private(path, "one")
    path.chmod(0o644)
    paths.write_private(path, "two\n")
    assert path.read_text(encoding="utf-8") == "two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    paths.write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        paths.write_private(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
