"""JSON schemas of tools: whether they are valid, and the grammar rule that generates what fits them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from llguidance import LLMatcher

MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_BYTES = 65_536

# One space after comma and colon, as models are trained to write JSON; no other white space, so that none can go on for ever.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# With one of these an object may gain properties that `properties` does not list.
_OPENING = frozenset(
    {
        "$ref", "$dynamicRef", "additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "allOf",
        "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "minProperties", "enum", "const",
    }
)  # fmt: skip
# Look-around is valid in a JSON schema's patterns, but no grammar can generate it.
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_BOUNDED = frozenset({"maxLength", "enum", "const", "format", "pattern", "$ref", "allOf", "anyOf", "oneOf"})


def canonical(value: Any) -> str:
    """JSON with sorted keys and no white space: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def depth_exceeds(value: Any, limit: int) -> bool:
    """Whether JSON ``value`` nests deeper than ``limit``."""
    level = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> list[Any]:
    if isinstance(node, Mapping):
        return list(node.values())
    return node if isinstance(node, list) else []


def nodes_exceed(value: Any, limit: int) -> bool:
    """Whether JSON ``value`` has more than ``limit`` values in it; looks at no more than that."""
    waiting = [value]
    for _ in range(limit):
        if not waiting:
            return False
        waiting += _children(waiting.pop())
    return bool(waiting)


@lru_cache(maxsize=1024)
def problem(schema_json: str, strict: bool) -> str:
    """What is wrong with a schema of a tool's arguments, given as canonical JSON; empty when nothing is.

    With ``strict`` a keyword that cannot be enforced is a problem; else it is left to the tool to check.
    """
    schema = json.loads(schema_json)
    if schema.get("type") != "object":
        return f"its type must be object, is {schema.get('type')!r}"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path)
        return f"not a valid JSON schema at {where or 'its top'}: {error.message[:200]}"
    return grammar_problem(f"start: {json_rule(schema, strict=strict)}\n")


def grammar_problem(grammar: str) -> str:
    """What is wrong with an llguidance grammar, in its own words; empty when nothing is."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if not failed:
        return ""
    return _PLACE.sub("", str(messages[0]).split("\n   1 |")[0]).replace("\n", " ").strip()[:300]


def json_rule(schema: Mapping[str, Any], *, strict: bool, string_limit: int | None = None) -> str:
    """A Lark expression for JSON text that fits ``schema``.

    It generates less than the schema may allow: white space as ``json.dumps`` writes it, no property that an object's own list
    does not name, and strings without a bound of their own of at most ``string_limit`` characters.
    """
    layout = {**_LAYOUT, "lenient": not strict}
    if not strict:
        schema = _without_look_around(schema)
    return "%json " + json.dumps({**_narrowed(schema, string_limit), "x-guidance": layout}, ensure_ascii=False)


def moved(schema: Any, path: str) -> Any:
    """``schema`` with its references changed for a place at ``path`` (a JSON pointer) of a larger one."""
    if isinstance(schema, list):
        return [moved(child, path) for child in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: f"#{path}{child[1:]}" if _refers(key, child) else moved(child, path) for key, child in schema.items()}


def _refers(key: str, value: Any) -> bool:
    return key == "$ref" and isinstance(value, str) and value.startswith("#")


def _without_look_around(schema: Any) -> Any:
    """``schema`` without the patterns that cannot be generated; the tool checks those."""
    if isinstance(schema, list):
        return [_without_look_around(child) for child in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _without_look_around(child) for key, child in schema.items() if not _looks_around(key, child)}


def _looks_around(key: str, value: Any) -> bool:
    return key == "pattern" and isinstance(value, str) and _LOOK_AROUND.search(value) is not None


def _narrowed(schema: Any, limit: int | None) -> Any:
    """``schema`` with open objects closed and strings bounded, but only where no keyword combines schemas."""
    if not isinstance(schema, Mapping):
        return schema
    out = dict(schema)
    if isinstance(out.get("properties"), Mapping):
        out["properties"] = {name: _narrowed(child, limit) for name, child in out["properties"].items()}
        if _closes(out):
            out["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if key in out:
            out[key] = _narrowed(out[key], limit)
    if limit is not None and out.get("type") == "string" and not _BOUNDED & out.keys():
        out["maxLength"] = max(limit, int(out.get("minLength", 0)))
    return out


def _closes(schema: Mapping[str, Any]) -> bool:
    required = schema.get("required", [])
    return not _OPENING & schema.keys() and isinstance(required, list) and set(required) <= set(schema["properties"])
