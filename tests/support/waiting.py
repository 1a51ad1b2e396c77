"""The one way in which tests wait for what another task or process brings about."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

DEADLINE = 30.0


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = DEADLINE) -> None:
    """Return once ``condition`` holds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await _holds(condition):  # noqa: ASYNC110 - the condition lies beyond a stream
            await asyncio.sleep(0.005)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    held = condition()
    return await held if inspect.isawaitable(held) else held
