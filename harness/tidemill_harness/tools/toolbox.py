"""The tools of a session: constant specs in constant order, and one place where calls become outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from tidemill_harness.items import Item, ToolCall


class ToolError(Exception):
    """A call can't be done. ``str()`` tells the model why."""


class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> Item:
        """The function spec that the model sees; constant, since the prompt's prefix depends on it."""
        ...

    @property
    def parallel_safe(self) -> bool:
        """Whether calls may run beside each other."""
        ...

    async def run(self, arguments: dict[str, Any]) -> str:
        """The output. Raises ToolError and pydantic's ValidationError."""
        ...


class Toolbox:
    """Finds a call's tool and runs it. Whatever is wrong with a call is told to the model as its output."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {str(tool.spec["name"]): tool for tool in tools}

    @property
    def specs(self) -> list[Item]:
        """What the model sees."""
        return [tool.spec for tool in self._tools.values()]

    def parallel_safe(self, name: str) -> bool:
        """Whether calls of ``name`` may run beside each other; a call of an unknown tool runs nothing."""
        return name not in self._tools or self._tools[name].parallel_safe

    async def run(self, call: ToolCall) -> str:
        """The output of ``call``."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: no tool {call.name!r}; there are {', '.join(self._tools)}"
        try:
            return await tool.run(_arguments(call.arguments))
        except ToolError as error:
            return f"error: {error}"
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
            return f"error: wrong arguments: {'; '.join(problems)}"


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text or "{}")
        json.dumps(arguments, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError("the arguments have half a surrogate pair") from error
    except ValueError as error:
        raise ToolError(f"the arguments are no JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are no JSON object")
    return arguments
