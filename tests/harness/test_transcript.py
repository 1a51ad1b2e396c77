from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fake_gateway import text_item
from tidemill_harness.events import ItemDone, ItemsAdded, Resent, StepFinished, TurnDone, Usage
from tidemill_harness.items import message
from tidemill_harness.transcript import Transcript, new_id


def test_only_items_of_turns_that_ended_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Transcript(new_id(), {"model": "m"}) as record:
        record(ItemsAdded((message("user", "hi"),)))
        record(ItemDone(text_item("half")))
        record(Resent("lost"))
        record(ItemDone(text_item("whole")))
        record(StepFinished(1, TurnDone("r1", Usage(1, 0, 1), None, 0.1)))
        lines = [json.loads(line) for line in record.path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["session", "item", "notice", "item", "turn"]
    assert lines[3]["item"] == text_item("whole")
    assert lines[0]["model"] == "m" and record.path.parent.stat().st_mode & 0o777 == 0o700
