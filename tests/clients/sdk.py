"""The openai Python SDK, unmodified: WebSocket turns, SSE and plain calls."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from tests.clients.stack import Stack

QUESTIONS = ("Name one colour.", "Name another one.", "Which did you name first?")
LIMIT = 24


def client(stack: Stack) -> OpenAI:
    """A client of the stack."""
    return OpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0, timeout=120)


def websocket_turns(stack: Stack, model: str) -> list[Any]:
    """Three turns on one connection, each chained to the last; returns the completed responses."""
    finished: list[Any] = []
    with client(stack).responses.connect() as connection:
        for question in QUESTIONS:
            previous = {"previous_response_id": finished[-1].id} if finished else {}
            connection.response.create(model=model, input=question, max_output_tokens=LIMIT, **previous)
            for event in connection:
                if event.type in ("response.completed", "response.incomplete"):
                    finished.append(event.response)
                    break
                if event.type in ("response.failed", "error"):
                    raise RuntimeError(f"turn failed: {event}")
    return finished


def sse_turn(stack: Stack, model: str) -> tuple[str, Any]:
    """One streamed turn; returns the text of its deltas and the last response."""
    text, last = "", None
    stream = client(stack).responses.create(model=model, input=QUESTIONS[0], max_output_tokens=LIMIT, stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "response.incomplete"):
            last = event.response
    return text, last


def plain_turns(stack: Stack, model: str) -> list[Any]:
    """Two plain calls, the second chained to the first through the store."""
    api = client(stack).responses
    first = api.create(model=model, input=QUESTIONS[0], max_output_tokens=LIMIT)
    return [first, api.create(model=model, input=QUESTIONS[1], max_output_tokens=LIMIT, previous_response_id=first.id)]
