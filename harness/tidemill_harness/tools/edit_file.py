"""The file-edit tool: replaces one passage of a file of the workspace, or makes a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tidemill_harness.approval import Approver
from tidemill_harness.items import Item
from tidemill_harness.sandbox.policy import Mode, Policy
from tidemill_harness.tools.toolbox import ToolError

MAX_BYTES = 2 << 20


class Arguments(BaseModel):
    """Arguments of a call."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1)
    old_text: str
    new_text: str


class EditFile:
    """Edits files under the same policy as commands. Edits run alone, in their place among the calls."""

    parallel_safe = False
    spec: ClassVar[Item] = {
        "type": "function",
        "name": "edit_file",
        "description": "Replace old_text, which must occur once in the file, by new_text. An empty old_text makes a new file.",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "old_text": {"type": "string"},
                "new_text": {"type": "string"},
            },
            "required": ["path", "old_text", "new_text"],
            "additionalProperties": False,
        },
        "strict": False,
    }

    def __init__(self, policy: Policy, approver: Approver) -> None:
        self._policy = policy
        self._approver = approver

    async def run(self, arguments: dict[str, Any]) -> str:
        """Edit, and tell what was done. Raises ToolError."""
        wanted = Arguments.model_validate(arguments)
        path = self._resolve(wanted.path)
        if not self._policy.writable and not await self._approver.allow(
            f"edit_file {wanted.path}", "The sandbox is read-only; this call would change a file."
        ):
            raise ToolError("the sandbox is read-only: no file can be changed")
        try:
            return _create(path, wanted) if not wanted.old_text else _replace(path, wanted)
        except OSError as error:
            raise ToolError(f"{wanted.path}: {error.strerror or error}") from error

    def _resolve(self, name: str) -> Path:
        """Where ``name`` really leads. Raises ToolError when that is outside the workspace, or protected."""
        if "\0" in name:
            raise ToolError("the path has a NUL character")
        path = Path(os.path.realpath(self._policy.workspace / name))
        if self._policy.mode is Mode.FULL_ACCESS:
            return path
        if not path.is_relative_to(self._policy.workspace) or path == self._policy.workspace:
            raise ToolError(f"{name} leads outside the workspace")
        if ".git" in map(str.casefold, path.relative_to(self._policy.workspace).parts):
            raise ToolError(f"{name} is protected: .git stays as it is")
        return path


def _create(path: Path, wanted: Arguments) -> str:
    if path.exists() and (path.is_dir() or path.stat().st_size):
        raise ToolError(f"{wanted.path} exists already; give the passage to replace as old_text")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, wanted.new_text)
    return f"created {wanted.path} ({wanted.new_text.count(chr(10))} lines)"


def _replace(path: Path, wanted: Arguments) -> str:
    if not path.is_file():
        raise ToolError(f"{wanted.path} is no file; an empty old_text makes one")
    if path.stat().st_size > MAX_BYTES:
        raise ToolError(f"{wanted.path} has more than {MAX_BYTES} bytes; use the shell")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{wanted.path} is no UTF-8 text") from error
    if (times := text.count(wanted.old_text)) != 1:
        raise ToolError(
            f"old_text occurs {times} times in {wanted.path}; it must occur once" + (times > 1) * ": give more context"
        )
    _write(path, text.replace(wanted.old_text, wanted.new_text))
    return f"edited {wanted.path}: {_lines(wanted.old_text)} lines replaced by {_lines(wanted.new_text)}"


def _lines(text: str) -> int:
    return len(text.splitlines())


def _write(path: Path, text: str) -> None:
    """Write whole or not at all; the file's mode stays."""
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
        os.chmod(partial, mode)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
