"""The body of /v1/models: OpenAI's list and the Codex CLI's catalogue in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Codex's own instructions take about 4,000 tokens; a small model reads these.
BASE_INSTRUCTIONS = (
    "You are a coding agent working in the user's terminal. Use the tools to look before you answer: list files, read them, "
    "run commands. Make the smallest change that does what the user asks, check it, then say in a sentence or two what you did."
)
MAX_TOOL_OUTPUT_TOKENS = 10_000


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model.

    Attributes:
        name: as requests name it.
        created: Unix seconds.
        context_length: tokens.
        require_tool_first: ask clients to require a tool call on the first step of a task.
        tool_call_format: template family.
        thinks: whether the model writes reasoning.
    """

    name: str
    created: int
    context_length: int
    require_tool_first: bool = False
    tool_call_format: str = ""
    thinks: bool = False


def models_body(cards: Sequence[ModelCard]) -> dict[str, Any]:
    """``{"object": "list", "data": [...], "models": [...]}``."""
    return {
        "object": "list",
        "data": [_listed(card) for card in cards],
        "models": [_catalogue_entry(card, priority) for priority, card in enumerate(cards, start=1)],
    }


def _listed(card: ModelCard) -> dict[str, Any]:
    own = {
        "require_tool_first": card.require_tool_first,
        "context_length": card.context_length,
        "tool_call_format": card.tool_call_format,
    }
    return {"id": card.name, "object": "model", "created": card.created, "owned_by": "tidemill", "tidemill": own}


def _catalogue_entry(card: ModelCard, priority: int) -> dict[str, Any]:
    """A lean entry: short instructions, no patch tool, MCP tools behind tool_search, outputs cut to a part of the context."""
    return {
        "slug": card.name,
        "display_name": card.name,
        "description": None,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "base_instructions": BASE_INSTRUCTIONS,
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": min(MAX_TOOL_OUTPUT_TOKENS, max(256, card.context_length // 8))},
        "supports_parallel_tool_calls": True,
        "context_window": card.context_length,
        "experimental_supported_tools": [],
        "input_modalities": ["text"],
        "supports_search_tool": True,
    }
