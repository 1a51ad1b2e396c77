from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill_common import paths
from tidemill_common.errors import TidemillError
from tidemill_common.keys import KeyRing
from tidemill_harness.commands_key import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, TidemillError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.requirement("keys:commands")
def test_a_key_is_shown_once_and_opens_for_its_tenant_until_it_is_revoked() -> None:
    plain = _run("add", "--tenant", "team-a").strip()
    record = KeyRing.load(paths.keys_file()).authenticate(plain)
    assert record is not None
    assert record.tenant == "team-a"
    listed = _run("list")
    assert record.id in listed
    assert "team-a" in listed
    assert plain not in listed
    assert plain not in paths.keys_file().read_text()
    assert _run("revoke", record.id) == f"Revoked {record.id}\n"
    assert KeyRing.load(paths.keys_file()).authenticate(plain) is None


def test_no_key_and_no_such_key_are_named() -> None:
    assert "No key yet" in _run("list")
    with pytest.raises(TidemillError, match="no key 'x'; `tidemill key list`"):
        _run("revoke", "x")
    assert CliRunner().invoke(app, ["add", "--tenant", " "]).exit_code == 2
