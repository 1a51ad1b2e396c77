"""JSON as it comes from clients and goes to them, and which shape a refusal takes."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.events import Event, ResponseEvents, error_event
from tidemill_gateway.request import parse_create

_ESCAPED_SURROGATE: Final = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def read_object(data: str | bytes) -> dict[str, Any]:
    """A JSON object. Half a surrogate pair, which JavaScript cuts strings into, reads as U+FFFD.

    Raises TidemillError(INVALID_REQUEST) for anything else, for numbers that no float holds, and for values nested too deeply.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if _ESCAPED_SURROGATE.search(text):
            value = _mended(value)
    except UnicodeError as error:
        raise TidemillError(Reason.INVALID_REQUEST, f"text is not valid Unicode: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TidemillError(Reason.INVALID_REQUEST, f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TidemillError(Reason.INVALID_REQUEST, f"a JSON object is expected, not {type(value).__name__}")
    return value


def write(event: Mapping[str, Any]) -> str:
    """Compact JSON of an event."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def clients_fault(error: TidemillError) -> bool:
    """Whether sending the same again would fail again."""
    return error.entry.http < 500 and error.reason is not Reason.OVERLOADED


def error_frame(error: TidemillError, stream_id: str | None = None) -> Event:
    """An ``error`` event. Its status is 400 whatever HTTP would say: clients try again on statuses that they do not know."""
    return {**error_event(error, stream_id=stream_id), "status": 400}


def refusal(raw: Mapping[str, Any], response_id: str, error: TidemillError) -> Event:
    """What a stream reads of a request that was not begun.

    An ``error`` event for what the client must change. For the rest ``response.failed``, on which clients wait and try again;
    they give up at once on an ``error`` event of status 429 or 503.
    """
    stream_id = raw.get("stream_id") if isinstance(raw.get("stream_id"), str) else None
    if clients_fault(error):
        return error_frame(error, stream_id)
    try:
        request = parse_create(raw)
    except TidemillError as wrong:
        return error_frame(wrong, stream_id)
    return ResponseEvents(response_id, request, time.time()).failed(error)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(child) for child in value]
    return {_mended(key): _mended(child) for key, child in value.items()} if isinstance(value, dict) else value


def _finite(digits: str) -> float:
    """A float that can be written as JSON again, which infinity can't."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:80]} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
