"""The calls of one turn: parallel-safe ones run side by side, any other alone and in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from tidemill_harness.items import Item, ToolCall

Run = Callable[[ToolCall], Awaitable[str]]


class Calls:
    """Runs calls while the turn still streams. No call outlives the ``async with`` block."""

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []
        self._tasks: list[asyncio.Task[str]] = []
        self._alone: list[asyncio.Task[str]] = []

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel what still runs, and see it end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, call: ToolCall, run: Run, alone: bool) -> None:
        """Run ``call`` once the calls before it that it can't run beside have ended."""
        after = list(self._tasks if alone else self._alone)
        task = asyncio.ensure_future(_run_after(after, run, call))
        self._calls.append(call)
        self._tasks.append(task)
        if alone:
            self._alone.append(task)

    def answer(self, call: ToolCall, output: str) -> None:
        """Give ``call`` an output without running it."""

        async def given(call: ToolCall) -> str:
            return output

        self.start(call, given, alone=False)

    async def outputs(self) -> list[Item]:
        """The output items, in the order of the calls, once all have ended."""
        texts = await asyncio.gather(*self._tasks)
        return [call.output(text) for call, text in zip(self._calls, texts, strict=True)]


async def _run_after(before: Sequence[asyncio.Task[str]], run: Run, call: ToolCall) -> str:
    if before:
        await asyncio.wait(before)
    return await run(call)
