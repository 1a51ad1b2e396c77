"""Stacks for end-to-end tests: started once, shared, and checked for leaks after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.greedy import Greedy
from tests.e2e.stack import Stack, Stacks

# Small chunks make a transfer that a test can meet half-way; the bounds keep free runs and whole stacks small.
SETTINGS = {
    "TIDEMILL_PREFILL_PREFILL_CHUNK": "64",
    "TIDEMILL_PREFILL_KV_BYTES": str(192 << 20),
    "TIDEMILL_DECODE_KV_BYTES": str(192 << 20),
    "TIDEMILL_GATEWAY_DEFAULT_MAX_OUTPUT_TOKENS": "160",
    "TIDEMILL_GATEWAY_MAX_MESSAGE_BYTES": str(1 << 20),
}
PATIENT = SETTINGS | {"TIDEMILL_GATEWAY_RECOVER_SECONDS": "180"}
IMPATIENT = SETTINGS | {"TIDEMILL_GATEWAY_RECOVER_SECONDS": "0"}


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Iterator[Stacks]:
    """Starts stacks; one runs at a time."""
    found = Stacks(tmp_path_factory.mktemp("stacks"))
    yield found
    found.stop()


@pytest.fixture
async def stack(stacks: Stacks) -> AsyncIterator[Stack]:
    """The six services. A turn without a worker waits for one to come back. Nothing may be left in use after the test."""
    running = stacks.get(**PATIENT)
    yield running
    await running.idle()


@pytest.fixture
async def pair(stacks: Stacks) -> AsyncIterator[Stack]:
    """A stack with two decode workers, where a turn that no worker is left for fails at once."""
    running = stacks.get("--decode", "2", **IMPATIENT)
    yield running
    await running.idle()


@pytest.fixture(scope="session")
def greedy(smollm2: Path) -> Greedy:
    """transformers, to compare with."""
    return Greedy(smollm2)
