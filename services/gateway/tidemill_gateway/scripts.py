"""Scripted model aliases: the real model computes every pass, a script says what comes out, turn by turn.

The file is JSON: an alias, then a list of turns, each a list of output items. A conversation's turn is the number of turns that
a model generated in it before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill_common.errors import Reason, TidemillError

Items = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Scripts:
    """Scripts by alias."""

    turns: Mapping[str, Sequence[Items]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None) -> Scripts:
        """Read ``path``; None is no script. Raises TidemillError(CONFIG) for a malformed file."""
        if path is None:
            return cls()
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return cls({str(alias): [_items(turn) for turn in turns] for alias, turns in raw.items()})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise TidemillError(Reason.CONFIG, f"scripts file {str(path)!r} is malformed: {error}") from error

    @property
    def aliases(self) -> tuple[str, ...]:
        """Names of the scripted models."""
        return tuple(self.turns)

    def turn(self, alias: str, index: int) -> Items | None:
        """Output items of a conversation's turn; None when ``alias`` is no script. Raises TidemillError after its end."""
        turns = self.turns.get(alias)
        if turns is None:
            return None
        if index >= len(turns):
            message = f"the script {alias!r} has {len(turns)} turns; turn {index + 1} was asked"
            raise TidemillError(Reason.INVALID_REQUEST, message, "model")
        return turns[index]


def _items(turn: Any) -> Items:
    if not isinstance(turn, list) or not all(isinstance(item, Mapping) for item in turn):
        raise TypeError(f"a turn is a list of items, not {turn!r}")
    return tuple(turn)
