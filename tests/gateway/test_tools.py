from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.request import ChoiceMode, NamedTool, ToolChoice
from tidemill_gateway.tools import Address, ToolKind, ToolSet

OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": f"does {name}", "parameters": OBJECT, **fields}


def codex_tools() -> list[dict[str, Any]]:
    return [
        function("exec_command", strict=False),
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
        {"type": "namespace", "name": "mcp__demo", "description": "demo", "tools": [function("weather", defer_loading=True)]},
        {"type": "tool_search", "execution": "client", "description": "finds tools", "parameters": OBJECT},
        {"type": "web_search"},
        {"type": "namespace", "name": "functions", "tools": [function("wait"), {"type": "custom", "name": "exec"}]},
    ]


def refusal(*specs: Any) -> TidemillError:
    with pytest.raises(TidemillError) as caught:
        ToolSet.parse(specs)
    return caught.value


@pytest.mark.requirement("gateway:tool-names")
def test_every_kind_of_tool_becomes_a_function_with_a_name_that_leads_back() -> None:
    tools = ToolSet.parse(codex_tools())
    assert [tool.name for tool in tools.tools] == [
        "exec_command", "apply_patch", "mcp__demo__weather", "tool_search", "wait", "exec",
    ]  # fmt: skip
    assert [tool.address for tool in tools.tools] == [
        Address(ToolKind.FUNCTION, "", "exec_command"),
        Address(ToolKind.CUSTOM, "", "apply_patch"),
        Address(ToolKind.FUNCTION, "mcp__demo", "weather"),
        Address(ToolKind.TOOL_SEARCH, "", "tool_search"),
        Address(ToolKind.FUNCTION, "functions", "wait"),
        Address(ToolKind.CUSTOM, "functions", "exec"),
    ]
    for tool in tools.tools:
        assert tools.by_name(tool.name) is tool
        assert tools.flat_name(tool.address) == tool.name


def test_a_custom_tool_takes_one_text() -> None:
    (tool,) = ToolSet.parse([{"type": "custom", "name": "exec"}]).tools
    assert '"required":["input"]' in tool.parameters_json


def test_tools_without_parameters_take_none() -> None:
    (tool,) = ToolSet.parse([{"type": "function", "name": "now", "parameters": None}]).tools
    assert tool.parameters_json == '{"properties":{},"type":"object"}'


names = st.text(min_size=1, max_size=80)
addresses = st.lists(st.tuples(st.sampled_from(["", "functions", "a", "a__b", "mcp.x"]), names), max_size=30, unique=True)


@pytest.mark.requirement("gateway:tool-names")
@given(addresses)
def test_flat_names_are_one_to_one_and_safe(found: list[tuple[str, str]]) -> None:
    raw = [
        {"type": "namespace", "name": space, "tools": [function(name)]} if space else function(name) for space, name in found
    ]
    tools = ToolSet.parse(raw)
    flat = [tool.name for tool in tools.tools]
    assert len(set(flat)) == len(flat) == len(found)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in flat)
    assert [(tool.address.namespace, tool.address.name) for tool in map(tools.by_name, flat) if tool] == found


@given(addresses, st.integers(0, 30))
def test_added_tools_leave_earlier_names_alone(found: list[tuple[str, str]], cut: int) -> None:
    raw = [
        {"type": "namespace", "name": space, "tools": [function(name)]} if space else function(name) for space, name in found
    ]
    first = ToolSet.parse(raw[:cut])
    whole, added = first.extended(raw[cut:], "input[0].tools")
    assert whole == ToolSet.parse(raw)
    assert whole.tools == (*first.tools, *added)


def test_a_tool_that_is_found_again_keeps_its_name_and_takes_the_new_schema() -> None:
    first = ToolSet.parse([function("a"), function("b")])
    again, added = first.extended([function("a", description="changed")], "input[0].tools")
    assert [tool.name for tool in again.tools] == ["a", "b"]
    assert again.tools[0].description == "changed"
    assert added == again.tools[:1]


def test_the_digest_ignores_the_order_of_keys_and_sees_every_change() -> None:
    one = ToolSet.parse([{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}])
    two = ToolSet.parse([{"parameters": {"properties": {"b": {}, "a": {}}, "type": "object"}, "name": "f", "type": "function"}])
    assert one.digest() == two.digest()
    others = [function("f"), function("g"), {"type": "custom", "name": "f"}]
    assert len({ToolSet.parse([other]).digest() for other in others} | {one.digest(), ToolSet().digest()}) == 5


@pytest.mark.requirement("gateway:invalid-tools")
@pytest.mark.parametrize(
    ("spec", "param", "words"),
    [
        (function("f", parameters={"type": "objekt"}), "tools[0].parameters", "'f'"),
        (function("f", parameters={"type": "array"}), "tools[0].parameters", "must be object"),
        (function("f", parameters=[]), "tools[0].parameters", "no JSON schema"),
        (function("f", parameters={"properties": {"x": {"type": "strin"}}}), "tools[0].parameters", "properties/x/type"),
        (function("f", parameters={"properties": {"x": {"$ref": "#/nowhere"}}}), "tools[0].parameters", "nowhere"),
        (function("f", parameters={"properties": {"x": {"enum": 3}}}), "tools[0].parameters", "enum"),
        (function("f", parameters={"description": "x" * 70_000}), "tools[0].parameters", "70"),
        (function("", parameters=OBJECT), "tools[0].name", "name"),
        (function("f", description=3), "tools[0].description", "description"),
        ({"type": "function", "function": {"name": "f"}}, "tools[0]", "Chat Completions"),
        ({"type": "namespace", "name": "n"}, "tools[0].tools", "'n'"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "function"}]}, "tools[0].tools[0].name", "name"),
        ({"type": "local_shell"}, "tools[0].type", "local_shell"),
        ({"type": ["function"]}, "tools[0].type", "function"),
    ],
)
def test_a_bad_tool_is_refused_by_name(spec: dict[str, Any], param: str, words: str) -> None:
    error = refusal(spec)
    assert (error.reason, error.param) == (Reason.INVALID_TOOLS, param)
    assert words in error.message


def test_a_schema_that_nests_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"properties": {"x": deep}}
    assert "nest deeper" in refusal(function("f", parameters=deep)).message


def test_a_tool_listed_twice_or_too_many_are_refused() -> None:
    assert "listed twice" in refusal(function("f"), function("f")).message
    assert "at most" in refusal(*(function(f"f{n}") for n in range(1025))).message


def test_no_more_tools_are_looked_at_than_are_taken() -> None:
    many = [*(function(f"f{n % 1000}") for n in range(1025)), {"type": "never looked at"}]
    assert "at most" in refusal(*many).message


def test_strict_refuses_what_cannot_be_enforced() -> None:
    odd = {"type": "object", "properties": {"x": {"type": "string", "format": "color"}}}
    assert ToolSet.parse([function("f", parameters=odd)]).tools
    assert "color" in refusal(function("f", parameters=odd, strict=True)).message


def test_the_choice_selects_tools() -> None:
    tools = ToolSet.parse(codex_tools())

    def selected(mode: ChoiceMode, *only: NamedTool) -> list[str]:
        return [tool.name for tool in tools.select(ToolChoice(mode, only or None))]

    assert selected(ChoiceMode.NONE) == []
    assert len(selected(ChoiceMode.AUTO)) == 6
    assert selected(ChoiceMode.REQUIRED, NamedTool("function", "weather")) == ["mcp__demo__weather"]
    assert selected(ChoiceMode.REQUIRED, NamedTool("function", "mcp__demo__weather")) == ["mcp__demo__weather"]
    assert selected(ChoiceMode.REQUIRED, NamedTool("function", "weather", "mcp__demo")) == ["mcp__demo__weather"]
    assert selected(ChoiceMode.AUTO, NamedTool("custom", "exec"), NamedTool("tool_search")) == ["tool_search", "exec"]


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    for tools, choice in (
        (ToolSet.parse(codex_tools()), ToolChoice(ChoiceMode.REQUIRED, (NamedTool("function", "exec"),))),
        (ToolSet(), ToolChoice(ChoiceMode.REQUIRED)),
    ):
        with pytest.raises(TidemillError) as caught:
            tools.select(choice)
        assert (caught.value.reason, caught.value.param) == (Reason.INVALID_REQUEST, "tool_choice")
