from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import PROFILE_FILE, ModelProfile

PROFILE = ModelProfile("smollm2", "chatml", "ab12", 8192, (2, 3), require_tool_first=True, source="a test")


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    PROFILE.save(tmp_path)
    assert ModelProfile.load(tmp_path) == PROFILE


def test_a_folder_without_profile_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(TidemillError, match="tidemill model add") as caught:
        ModelProfile.load(tmp_path)
    assert caught.value.reason is Reason.CONFIG


@pytest.mark.parametrize("change", [{"colour": "red"}, {"end_token_ids": 5}, {"end_token_ids": None}])
def test_a_malformed_profile_is_refused_by_name(tmp_path: Path, change: dict[str, object]) -> None:
    PROFILE.save(tmp_path)
    path = tmp_path / PROFILE_FILE
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(TidemillError, match=r"tidemill\.json"):
        ModelProfile.load(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "x"}'])
def test_an_incomplete_profile_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / PROFILE_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(TidemillError, match="malformed"):
        ModelProfile.load(tmp_path)
