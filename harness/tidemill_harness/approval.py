"""Who decides when a call needs more than the sandbox gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from tidemill_harness.plain import clean

Ask = Callable[[str], Awaitable[str | None]]

CHOICES = "[y]es once, [n]o, [a]lways in this session: "


class ApprovalPolicy(StrEnum):
    """When the user is asked."""

    ON_REQUEST = "on-request"
    NEVER = "never"


class Approver:
    """Asks the user, one question at a time, and remembers what is always allowed. Without a way to ask, nothing is allowed."""

    def __init__(self, policy: ApprovalPolicy, ask: Ask | None = None) -> None:
        self._ask = ask if policy is ApprovalPolicy.ON_REQUEST else None
        self._always: set[str] = set()
        self._one = asyncio.Lock()

    async def allow(self, action: str, why: str) -> bool:
        """Whether ``action`` may go beyond the sandbox; "always" holds for exactly this action. End of input is a no."""
        if self._ask is None:
            return False
        async with self._one:
            if action in self._always:
                return True
            reply = await self._choice(self._ask, f"{why}\n{_shown(action)}\nAllow it? {CHOICES}")
            if reply == "a":
                self._always.add(action)
            return reply in ("y", "a")

    async def _choice(self, ask: Ask, question: str) -> str:
        """y, n or a; asked again until it is one."""
        while True:
            reply = await ask(question)
            if reply is None:
                return "n"
            first = reply.strip().lower()[:1]
            if first in ("y", "n", "a"):
                return first
            question = CHOICES


def _shown(action: str) -> str:
    """The whole action, indented, and nothing that hides a part of it."""
    return "\n".join(f"  {line}" for line in clean(action).splitlines())
