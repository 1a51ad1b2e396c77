from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_gateway.content import turn_digest, turn_digests

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
arguments = st.dictionaries(
    st.text(max_size=4), scalars | st.dictionaries(st.text(max_size=3), scalars, max_size=3), max_size=4
)
texts = st.text(max_size=12)


def message(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def call(name: str, given_arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(given_arguments), **fields}


@pytest.mark.requirement("gateway:resent-turns")
@given(texts, arguments, st.randoms(use_true_random=False))
def test_the_digest_ignores_ids_statuses_and_key_order(text: str, given_arguments: dict[str, Any], random: Any) -> None:
    emitted = [
        message(text, id="msg_1", status="completed"),
        call("f", given_arguments, id="fc_1", call_id="call_1", status="completed"),
    ]
    pairs = list(given_arguments.items())
    random.shuffle(pairs)
    resent = [
        {"role": "assistant", "content": text},
        {"call_id": "other", "arguments": json.dumps(dict(pairs), indent=2), "name": "f", "type": "function_call"},
    ]
    assert turn_digest(emitted) == turn_digest(resent)


@given(st.lists(st.one_of(texts.map(message), st.tuples(texts, arguments).map(lambda pair: call(*pair))), max_size=4))
def test_the_digest_sees_what_a_turn_says(items: list[dict[str, Any]]) -> None:
    digest = turn_digest(items)
    assert digest != turn_digest([*items, message("more")])
    assert digest != turn_digest([*items, call("g", {})])
    assert len(digest) == 16


def test_kinds_and_namespaces_count() -> None:
    custom = {"type": "custom_tool_call", "name": "f", "input": "{}"}
    plain = call("f", {})
    assert len({turn_digest([item]) for item in (custom, plain, {**plain, "namespace": "n"})}) == 3


def test_a_turn_is_found_again_without_its_reasoning() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    whole, spoken = turn_digests([thought, message("yes")])
    assert whole == turn_digest([thought, message("yes")])
    assert spoken == turn_digest([message("yes")])
    assert turn_digests([message("yes")]) == (spoken,)
    assert turn_digests([thought]) == (turn_digest([thought]),)


def test_half_surrogates_and_endless_nesting_have_a_digest() -> None:
    assert turn_digest([message("\ud83d")]) != turn_digest([{"type": "function_call", "name": "f", "arguments": "[" * 100_000}])
