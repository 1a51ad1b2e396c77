from __future__ import annotations

from pathlib import Path

from tidemill_harness.sandbox.policy import Mode, Policy, environment


def test_full_access_keeps_variables_but_no_secrets() -> None:
    source = {"FOO": "1", "my_api_key": "2", "DB_PASSWORD": "3", "PATH": "/bin"}
    kept = environment(Mode.FULL_ACCESS, Path("/t"), source)
    assert kept["FOO"] == "1" and kept["TMPDIR"] == "/t"
    assert not {"my_api_key", "DB_PASSWORD"} & set(kept)


def test_other_modes_keep_an_allow_list() -> None:
    kept = environment(Mode.READ_ONLY, Path("/t"), {"FOO": "1", "PATH": "/bin", "LC_ALL": "C"})
    assert set(kept) == {"PATH", "LC_ALL", "TMPDIR", "GIT_PAGER", "PAGER"}


def test_a_workspace_without_a_repository_has_nothing_protected(tmp_path: Path) -> None:
    assert Policy(Mode.WORKSPACE_WRITE, tmp_path, tmp_path).protected == []
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    assert Policy(Mode.WORKSPACE_WRITE, tmp_path, tmp_path).protected == [tmp_path / ".git"]
