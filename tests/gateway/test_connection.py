from __future__ import annotations

from tests.gateway.stack import Stack, text_of


async def test_turn_over_websocket_streams_text_and_completes(stack: Stack) -> None:
    async with stack.socket() as socket:
        events = await socket.turn(input="Hi")
    assert [event["type"] for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed", events[-1]
    assert text_of(events[-1]["response"]) == "Hello there."
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
