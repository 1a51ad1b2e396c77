from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.scripts import Scripts

TURNS = '{"scripted": [[{"type": "message"}], [{"type": "function_call"}]]}'


def test_turns_are_counted_from_the_start_of_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(TURNS)
    scripts = Scripts.load(path)
    assert scripts.aliases == ("scripted",)
    assert scripts.turn("scripted", 1) == ({"type": "function_call"},)
    assert scripts.turn("smollm2", 0) is None


def test_a_script_that_is_over_says_how_long_it_was(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(TURNS)
    with pytest.raises(TidemillError, match="has 2 turns") as error:
        Scripts.load(path).turn("scripted", 2)
    assert error.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("text", ["", "[]", '{"a": 3}', '{"a": [3]}', '{"a": [[3]]}', "\udcff"])
def test_a_malformed_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scripts.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TidemillError, match=r"scripts\.json") as error:
        Scripts.load(path)
    assert error.value.reason is Reason.CONFIG


def test_no_file_is_no_script() -> None:
    assert Scripts.load(None).aliases == ()
