from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.errors import CATALOGUE, Reason, TidemillError
from tidemill_gateway import wire

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.booleans())
def test_objects_are_read_as_written(value: dict[str, object], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert wire.read_object(text) == value
    assert wire.read_object(text.encode()) == value


@given(st.text() | st.binary())
def test_anything_is_an_object_or_a_typed_error(data: str | bytes) -> None:
    try:
        assert isinstance(wire.read_object(data), dict)
    except TidemillError as error:
        assert error.reason is Reason.INVALID_REQUEST


def test_half_a_surrogate_pair_reads_as_a_replacement_character() -> None:
    read = wire.read_object(r'{"a": ["\ud83d", "\ud83d\ude00"], "\udc00": 1}')
    assert read == {"a": ["\ufffd", "\U0001f600"], "\ufffd": 1}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 400 + ".0", "NaN", "Infinity"])
def test_a_number_that_can_not_be_written_as_json_again_is_refused(number: str) -> None:
    with pytest.raises(TidemillError) as caught:
        wire.read_object(f'{{"metadata": {{"a": {number}}}}}')
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("text", ["x", r"\ud800"])
@pytest.mark.parametrize("depth", [600, 950, 100_000])
def test_any_nesting_is_read_or_refused(depth: int, text: str) -> None:
    try:
        wire.read_object(f'{{"input": "{text}", "a": {"[" * depth}{"]" * depth}}}')
    except TidemillError as error:
        assert error.reason is Reason.INVALID_REQUEST


@pytest.mark.requirement("gateway:error-shapes")
@pytest.mark.parametrize("reason", list(Reason))
def test_what_may_work_later_is_a_failed_response_and_the_rest_an_error_of_status_400(reason: Reason) -> None:
    event = wire.refusal({"model": "fake", "stream_id": "s"}, "resp_1", TidemillError(reason, "why", "param"))
    assert event["stream_id"] == "s"
    if event["type"] == "error":
        assert (event["status"], event["error"]["code"]) == (400, CATALOGUE[reason].code)
        assert CATALOGUE[reason].http < 500
    else:
        assert event["response"]["error"]["code"] == CATALOGUE[reason].code
        assert CATALOGUE[reason].http >= 500 or reason is Reason.OVERLOADED


def test_a_request_that_can_not_even_be_read_is_told_so_under_load() -> None:
    event = wire.refusal({"input": 3}, "resp_1", TidemillError(Reason.OVERLOADED, "busy"))
    assert (event["type"], event["error"]["code"]) == ("error", "invalid_request")
