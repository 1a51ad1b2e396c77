"""Load and occupancy of an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot, taken after each step and each command.

    Attributes:
        running: sequences that hold blocks.
        waiting: sequences that wait for admission.
        pending_prefill_tokens: prompt tokens not yet computed, of both.
        free_blocks: blocks that no sequence needs (cached ones among them).
        total_blocks: all blocks.
        used_blocks: blocks that sequences hold: 0 when idle, else something leaks.
        sequences: sequences that run or wait.
    """

    running: int = 0
    waiting: int = 0
    pending_prefill_tokens: int = 0
    free_blocks: int = 0
    total_blocks: int = 0
    used_blocks: int = 0
    sequences: int = 0
