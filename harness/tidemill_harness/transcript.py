"""The record of a session: one JSON object a line, only ever appended to, enough to resume the conversation later.

Lines are ``session`` (first), ``item`` (of the conversation, in order), ``turn`` (the items before it are what the server
answered, with its id and tokens), ``call`` (what a tool took), ``notice`` and ``end`` (of a task).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tidemill_common import paths
from tidemill_harness.events import (
    AgentEvent,
    ItemDone,
    ItemsAdded,
    Notice,
    Resent,
    StepFinished,
    TaskFinished,
    ToolFinished,
    Waiting,
)
from tidemill_harness.items import Item


def sessions_dir() -> Path:
    """Folder of the transcripts."""
    return paths.state_dir() / "sessions"


def new_id() -> str:
    """Id of a session; ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


class Transcript:
    """Writes the record as events come, each line at once.

    Attributes:
        path: the file, readable by its owner only.
    """

    def __init__(self, session_id: str, facts: Mapping[str, Any]) -> None:
        self.path = sessions_dir() / f"{session_id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
        self._open: list[Item] = []
        self._write("session", {"id": session_id, **facts})

    def __enter__(self) -> Self:
        """The transcript itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def __call__(self, event: AgentEvent) -> None:
        """Record ``event``. Output items count once their turn ended, since a turn may start anew."""
        match event:
            case ItemsAdded(items):
                self.items(items)
            case ItemDone(item):
                self._open.append(item)
            case Resent() | Waiting():
                self._open.clear()
                self._write("notice", {"text": event.why})
            case StepFinished(step, turn):
                self.items(self._open)
                self._open.clear()
                self._write("turn", {"step": step, **asdict(turn)})
            case ToolFinished(call, _, seconds):
                self._write("call", {"call_id": call.call_id, "name": call.name, "seconds": seconds})
            case Notice(text):
                self._write("notice", {"text": text})
            case TaskFinished():
                self._open.clear()
                self._write("end", asdict(event))
            case _:
                pass

    def items(self, items: Sequence[Item]) -> None:
        """Record items of the conversation."""
        for item in items:
            self._write("item", {"item": item})

    def _write(self, kind: str, fields: Mapping[str, Any]) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "type": kind, **fields}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
