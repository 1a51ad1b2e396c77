"""A written trajectory: the output of each model turn, which the server forces instead of sampling."""

from __future__ import annotations

import json
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.items import Item

NOTICE = "Scripted: the output of the first {turns} model turns is forced by {path}; the model computes, but chooses nothing."


def load(path: Path) -> list[list[Item]]:
    """A JSON list of turns, each a list of output items. Raises TidemillError(CONFIG) that names what is wrong."""
    try:
        turns = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TidemillError(Reason.CONFIG, f"trajectory {str(path)!r} can't be read: {error}") from error
    if not isinstance(turns, list) or not all(_is_turn(turn) for turn in turns):
        raise TidemillError(Reason.CONFIG, f"trajectory {str(path)!r} is no list of turns, each a list of items with a type")
    return turns


def _is_turn(turn: object) -> bool:
    return isinstance(turn, list) and bool(turn) and all(isinstance(item, dict) and "type" in item for item in turn)
