"""Runs a session for the command line: view, standard input, signals and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from tidemill_common.errors import TidemillError
from tidemill_harness.choices import Choices
from tidemill_harness.events import Notice, TaskFinished, Usage
from tidemill_harness.session import Session, open_session
from tidemill_harness.stdin import Lines
from tidemill_harness.view import View, make_view

ANSWERED, FAILED, INTERRUPTED = 0, 1, 130
GOODBYES = frozenset({"/quit", "/exit"})


def run(choices: Choices, task: str | None) -> int:
    """Work on ``task``, or chat without one; the exit code. SIGTERM ends it as Ctrl-C does."""
    try:
        return asyncio.run(_work(choices, task))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED


async def _work(choices: Choices, task: str | None) -> int:
    """One task, or a chat. Whatever fails is shown by the view."""
    view, lines = make_view(choices.as_json, choices.hops), Lines()
    main = asyncio.current_task()
    if main is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)

    async def ask(question: str) -> str | None:
        view.close()
        return await lines.read(question)

    can_ask = lines.interactive and not choices.as_json
    try:
        async with open_session(choices, view, ask if can_ask else None) as session:
            if task is not None:
                return ANSWERED if await session.ask(task) else FAILED
            return await _chat(session, view, lines)
    except TidemillError as error:
        view(TaskFinished("", 0, Usage(), 0.0, error.sentence()))
        return FAILED
    finally:
        view.close()


async def _chat(session: Session, view: View, lines: Lines) -> int:
    """Messages until the end of input; the exit code is the last task's."""
    code = ANSWERED
    if lines.interactive:
        view(Notice("Ctrl-C ends a turn, Ctrl-D or /quit the chat."))
    while True:
        view.close()
        text = await lines.read("› ")
        if text is None or text.strip() in GOODBYES:
            return code
        if text.strip():
            code = await _interruptible(session.ask(text))


async def _interruptible(turn: Coroutine[Any, Any, bool]) -> int:
    """Run a turn, which Ctrl-C ends without ending the chat."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(turn)
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await asyncio.wait({task})
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    if task.cancelled():
        return INTERRUPTED
    return ANSWERED if task.result() else FAILED
