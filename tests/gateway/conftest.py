"""A gateway among fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.stack import Stack, running
from tests.support.fake_services import FakeServices


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """A gateway with one decode worker and default settings."""
    async with running(tmp_path) as started:
        yield started


@pytest.fixture
async def fakes() -> AsyncIterator[FakeServices]:
    """The services around a gateway, with one decode worker."""
    started = FakeServices()
    await started.start()
    yield started
    await started.stop()
