"""The body of /v1/models: OpenAI's list and the Codex CLI's catalogue in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model. ``created`` is in Unix seconds; ``context_length`` in tokens; ``tool_call_format`` is the template family."""

    name: str
    created: int
    context_length: int
    require_tool_first: bool = False
    tool_call_format: str = ""
    thinks: bool = False


def models_body(cards: Sequence[ModelCard]) -> dict[str, Any]:
    """``{"object": "list", "data": [...], "models": [...]}``."""
    raise NotImplementedError
