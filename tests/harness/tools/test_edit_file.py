from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.tools.test_shell import Person
from tidemill_harness.approval import ApprovalPolicy, Approver
from tidemill_harness.sandbox.policy import Mode, Policy
from tidemill_harness.tools.edit_file import EditFile
from tidemill_harness.tools.toolbox import ToolError


def editor(workspace: Path, mode: Mode = Mode.WORKSPACE_WRITE, person: Person | None = None) -> EditFile:
    approver = Approver(ApprovalPolicy.ON_REQUEST, person.ask if person else None)
    return EditFile(Policy(mode, workspace, workspace), approver)


async def edit(tool: EditFile, path: str, old: str, new: str) -> str:
    return await tool.run({"path": path, "old_text": old, "new_text": new})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "workspace"
    path.mkdir()
    (path / "file.txt").write_bytes(b"one\r\ntwo\r\none more\r\n")
    return path


async def test_one_passage_is_replaced_and_nothing_else_changes(workspace: Path) -> None:
    (workspace / "file.txt").chmod(0o750)
    assert await edit(editor(workspace), "file.txt", "two", "2") == "edited file.txt: 1 lines replaced by 1"
    assert (workspace / "file.txt").read_bytes() == b"one\r\n2\r\none more\r\n"
    assert (workspace / "file.txt").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in workspace.iterdir()] == ["file.txt"]


async def test_an_empty_old_text_makes_a_file_with_its_folders(workspace: Path) -> None:
    await edit(editor(workspace), "a/b/new.txt", "", "x\n")
    assert (workspace / "a/b/new.txt").read_text() == "x\n"


@pytest.mark.parametrize(
    ("path", "old", "message"),
    [
        ("file.txt", "one", "2 times"),
        ("file.txt", "three", "0 times"),
        ("file.txt", "", "exists already"),
        ("missing", "x", "is no file"),
        ("file.txt/x", "", "File exists"),
    ],
)
async def test_an_edit_that_is_not_clear_is_refused(workspace: Path, path: str, old: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        await edit(editor(workspace), path, old, "x")
    assert (workspace / "file.txt").read_bytes() == b"one\r\ntwo\r\none more\r\n"


@pytest.mark.requirement("edit:inside-only")
@pytest.mark.parametrize("path", ["../x", "/etc/tidemill-x", "link/x", "deep/../../x", "loop", "."])
async def test_paths_that_lead_outside_are_refused(workspace: Path, path: str) -> None:
    (workspace / "link").symlink_to("/tmp")
    (workspace / "loop").symlink_to(workspace.parent / "target")
    with pytest.raises(ToolError, match="outside"):
        await edit(editor(workspace), path, "", "x")
    assert not (workspace.parent / "target").exists()


@pytest.mark.parametrize("path", [".git/config", ".GIT/config", "sub/.git/hooks/x", "link/config"])
async def test_git_is_protected(workspace: Path, path: str) -> None:
    (workspace / ".git").mkdir()
    (workspace / "link").symlink_to(".git")
    with pytest.raises(ToolError, match="protected"):
        await edit(editor(workspace), path, "", "x")


async def test_read_only_asks_first(workspace: Path) -> None:
    person = Person("n", "y")
    tool = editor(workspace, Mode.READ_ONLY, person)
    with pytest.raises(ToolError, match="read-only"):
        await edit(tool, "file.txt", "two", "2")
    await edit(tool, "file.txt", "two", "2")
    assert len(person.questions) == 2


async def test_binary_files_are_refused(workspace: Path) -> None:
    (workspace / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ToolError, match="UTF-8"):
        await edit(editor(workspace), "binary", "x", "y")
