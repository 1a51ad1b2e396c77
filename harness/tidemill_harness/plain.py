"""Text of models and tools, made safe to show."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Text without control characters, so that neither model nor tool drives the terminal."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
