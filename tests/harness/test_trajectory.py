from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common.errors import TidemillError
from tidemill_harness.trajectory import load


@pytest.mark.parametrize("text", ["{}", "[[]]", "[[1]]", "[[{}]]", "nonsense"])
def test_a_malformed_trajectory_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "turns.json"
    path.write_text(text)
    with pytest.raises(TidemillError, match=r"turns\.json"):
        load(path)


def test_turns_are_lists_of_items(tmp_path: Path) -> None:
    path = tmp_path / "turns.json"
    path.write_text('[[{"type": "message"}]]')
    assert load(path) == [[{"type": "message"}]]
