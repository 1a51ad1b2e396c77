"""The text of one tool call, read as it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum, auto

from tidemill_gateway.syntax import CallSyntax
from tidemill_gateway.tools import FlatTool

_JSON_STRING = r'"(?:[^"\\]|\\.)*"'
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class Scan(Enum):
    """How far a call has come."""

    READING = auto()
    WHOLE = auto()
    BROKEN = auto()


class CallScanner:
    """Reads what follows a begin marker: a JSON object with a known tool's name and its arguments, then the end marker.

    Attributes:
        state: READING until the text is certain to be a call or to be none.
        tool: the tool called, as soon as its name and the start of its arguments are there.
        text: everything fed.
        end: where in ``text`` the call ends, once WHOLE.
    """

    def __init__(self, syntax: CallSyntax, tools: Mapping[str, FlatTool]) -> None:
        self._syntax = syntax
        self._tools = tools
        self._closing = syntax.end.strip()
        keys = (json.dumps(syntax.name_key), json.dumps(syntax.arguments_key))
        self._head = re.compile(
            rf"\s*\{{\s*{re.escape(keys[0])}\s*:\s*({_JSON_STRING})\s*,\s*{re.escape(keys[1])}\s*:\s*(?=\{{)"
        )
        self._at = 0
        self._depth = 0
        self._in_string = False
        self._object_end = 0
        self._arguments_start = 0
        self._arguments_end = 0
        self._rewritten: str | None = None
        self.state = Scan.READING
        self.tool: FlatTool | None = None
        self.text = ""
        self.end = 0

    @property
    def arguments(self) -> str:
        """The JSON arguments as far as they are certain; whole once WHOLE."""
        if self._rewritten is not None:
            return self._rewritten
        return self.text[self._arguments_start : self._arguments_end or self._at] if self._arguments_start else ""

    def feed(self, text: str) -> None:
        """Read on."""
        self.text += text
        if self.state is Scan.READING and not self._object_end:
            self._read_object()
        if self.state is Scan.READING and self._object_end:
            self._read_end()

    def finish(self) -> None:
        """The turn is over: a whole object whose end marker is missing counts as a call; anything less does not."""
        if self.state is Scan.READING:
            blank = self._object_end and not self.text[self._object_end :].strip()
            self.state, self.end = (Scan.WHOLE, len(self.text)) if blank else (Scan.BROKEN, 0)

    def _read_object(self) -> None:
        lead = self.text.lstrip()
        if not lead:
            return
        if lead[0] != "{":
            self.state = Scan.BROKEN
            return
        if self.tool is None and (head := self._head.match(self.text)):
            self.tool = self._tools.get(head[1][1:-1])
            self._arguments_start = head.end()
            if self.tool is None:
                self.state = Scan.BROKEN
                return
        self._scan()
        if self._object_end:
            self._check()

    def _scan(self) -> None:
        """Follow strings and brackets to the object's end, or to where the text ends."""
        while self._at < len(self.text):
            found = (_INSIDE if self._in_string else _OUTSIDE).search(self.text, self._at)
            if found is None:
                self._at = len(self.text)
                return
            if found[0] == "\\" and found.end() == len(self.text):
                self._at = found.start()
                return
            self._at = found.end() + (found[0] == "\\")
            self._step(found[0])
            if self._object_end:
                return

    def _step(self, mark: str) -> None:
        if mark == '"':
            self._in_string = not self._in_string
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth -= 1
            if self._depth == 1 and self._arguments_start and not self._arguments_end:
                self._arguments_end = self._at
            if self._depth == 0:
                self._object_end = self._at

    def _check(self) -> None:
        """Whether the object is a call: it is read as JSON, so that any order of its keys counts."""
        try:
            call = json.loads(self.text[: self._object_end])
            name, arguments = call[self._syntax.name_key], call[self._syntax.arguments_key]
        except (ValueError, KeyError, RecursionError):
            self.state = Scan.BROKEN
            return
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(arguments, dict):
            self.state = Scan.BROKEN
        elif self.tool is None:
            self.tool, self._rewritten = tool, json.dumps(arguments, ensure_ascii=False)
        elif tool is not self.tool or json.loads(self.arguments) != arguments:
            self.state = Scan.BROKEN  # a key stands twice: what was read is not what it says

    def _read_end(self) -> None:
        rest = self.text[self._object_end :].lstrip() if self._closing else ""
        if rest.startswith(self._closing):
            self.state, self.end = Scan.WHOLE, len(self.text) - len(rest) + len(self._closing) if rest else self._object_end
        elif not self._closing.startswith(rest):
            self.state = Scan.BROKEN
