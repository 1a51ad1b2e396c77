from __future__ import annotations

import pytest

from tests.support import fake_gateway as fake
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import frames
from tidemill_harness.events import ItemDone, ReasoningDelta, TextDelta
from tidemill_harness.frames import Busy, Ended, Hops, Lost


def test_each_kind_of_frame_is_read() -> None:
    assert frames.read(fake.delta("a")) == TextDelta("a")
    assert frames.read({"type": "response.reasoning_text.delta", "delta": "b"}) == ReasoningDelta("b")
    assert frames.read(fake.done({"type": "message"})) == ItemDone({"type": "message"})
    assert frames.read({"type": "response.metadata", "hops": [{"service": "x"}]}) == Hops(({"service": "x"},))
    assert frames.read({"type": "response.created", "response": {"id": "r"}}) is None
    assert frames.read({"type": "something.new"}) is None
    cut = {"type": "response.incomplete", "response": {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}}}
    ended = frames.read(cut)
    assert isinstance(ended, Ended) and (ended.response_id, ended.incomplete) == ("r", "max_output_tokens")


@pytest.mark.parametrize(
    ("frame", "counts"),
    [
        (fake.delta("a"), True),
        (fake.delta(""), False),
        ({"type": "response.created"}, False),
        ({"type": "response.function_call_arguments.delta", "delta": "{"}, True),
        (fake.done(fake.text_item("x")), True),
        ({"type": "response.output_item.added", "item": {}}, False),
    ],
)
def test_generated_tokens_of_any_kind_stop_the_ttft_clock(frame: fake.Frame, counts: bool) -> None:
    assert frames.carries_token(frame) is counts


def test_losses_say_whether_a_new_connection_is_needed() -> None:
    with pytest.raises(Lost) as lost:
        frames.read(fake.error("previous_response_not_found"))
    with pytest.raises(Lost) as drained:
        frames.read(fake.error("websocket_connection_limit_reached"))
    assert (lost.value.reconnect, drained.value.reconnect) == (False, True)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [("Please try again in 1s.", 1.0), ("try again in 250 ms", 0.25), ("try again in 1.5s", 1.5), ("busy", None)],
)
def test_back_pressure_says_how_long_to_wait(message: str, seconds: float | None) -> None:
    with pytest.raises(Busy) as busy:
        frames.read(fake.failed("rate_limit_exceeded", message))
    assert busy.value.seconds == seconds


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("context_length_exceeded", Reason.CONTEXT_LENGTH_EXCEEDED),
        ("invalid_prompt", Reason.SAFETY_REFUSED),
        ("forced_output_disabled", Reason.FORCED_OUTPUT_DISABLED),
        ("something_else", Reason.INTERNAL),
    ],
)
def test_other_failures_are_of_the_catalogue(code: str, reason: Reason) -> None:
    with pytest.raises(TidemillError) as caught:
        frames.read(fake.failed(code, "what happened"))
    assert caught.value.reason is reason


def test_advice_that_the_message_carries_is_not_said_twice() -> None:
    sentence = TidemillError(Reason.CONTEXT_LENGTH_EXCEEDED, "9000 tokens are more than 8192").sentence()
    with pytest.raises(TidemillError) as caught:
        frames.read(fake.failed("context_length_exceeded", sentence))
    assert caught.value.sentence() == sentence
