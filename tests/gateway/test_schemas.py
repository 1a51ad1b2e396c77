from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_gateway import schemas


def rule(schema: dict[str, Any], **options: Any) -> dict[str, Any]:
    text = schemas.json_rule(schema, **{"strict": False, **options})
    value: dict[str, Any] = json.loads(text.removeprefix("%json "))
    return value


def test_an_object_generates_only_the_properties_that_it_names() -> None:
    nested = {"type": "object", "properties": {"b": {"type": "string"}}}
    closed = rule({"type": "object", "properties": {"a": nested}})
    assert closed["additionalProperties"] is False
    assert closed["properties"]["a"]["additionalProperties"] is False


def test_an_object_that_other_keywords_add_to_stays_open() -> None:
    for keyword in ({"additionalProperties": {"type": "string"}}, {"allOf": [{"required": ["b"]}]}, {"required": ["b"]}):
        schema = {"type": "object", "properties": {"a": {}}, **keyword}
        assert rule(schema).get("additionalProperties") is not False


def test_only_strings_without_a_bound_are_bounded() -> None:
    strings = {
        "free": {"type": "string"},
        "long": {"type": "string", "minLength": 30},
        "own": {"type": "string", "maxLength": 9},
    }
    listed = {"type": "array", "items": {"type": "string"}}
    properties = rule({"type": "object", "properties": {**strings, "listed": listed}}, string_limit=20)["properties"]
    assert [properties[name]["maxLength"] for name in strings] == [20, 30, 9]
    assert properties["listed"]["items"]["maxLength"] == 20


def test_a_pattern_that_looks_around_is_left_to_the_tool_unless_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?!x)y"}}}
    text = schemas.canonical(schema)
    assert schemas.problem(text, False) == ""
    assert "look-around" in schemas.problem(text, True)


def test_moved_references_point_to_the_new_place() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}, "$ref": {"type": "string"}}, "allOf": [{"$ref": "#"}]}
    moved = schemas.moved(schema, "/properties/x")
    assert moved["properties"]["a"] == {"$ref": "#/properties/x/$defs/A"}
    assert moved["properties"]["$ref"] == {"type": "string"}
    assert moved["allOf"] == [{"$ref": "#/properties/x"}]


def test_depth_counts_objects_and_lists() -> None:
    assert not schemas.depth_exceeds({"a": [1]}, 3)
    assert schemas.depth_exceeds({"a": [1]}, 2)


@given(st.permutations([("a", 1), ("b", [1, {"y": 2, "x": "é"}]), ("c", None)]))
def test_canonical_text_does_not_depend_on_the_order_of_keys(pairs: list[tuple[str, Any]]) -> None:
    assert schemas.canonical(dict(pairs)) == '{"a":1,"b":[1,{"x":"é","y":2}],"c":null}'


@pytest.mark.parametrize(("value", "count"), [(1, 1), ([], 1), ([1, [2]], 4), ({"a": {"b": 1}, "c": []}, 4)])
def test_values_are_counted_up_to_a_limit(value: object, count: int) -> None:
    assert not schemas.nodes_exceed(value, count)
    assert schemas.nodes_exceed(value, count - 1)
