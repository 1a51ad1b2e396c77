"""Responses tools as flat functions, and the way back from a flat name to the tool that the client knows."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import schemas
from tidemill_gateway.request import ChoiceMode, NamedTool, ToolChoice

MAX_TOOLS = 1024
MAX_NAME = 64
DEFAULT_NAMESPACE = "functions"
SEARCH_NAME = "tool_search"

# Tools that OpenAI's servers run. Nothing here runs them, and clients list them by default, so they are left out.
HOSTED = frozenset(
    {
        "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search",
        "code_interpreter", "image_generation", "computer", "computer_use_preview", "mcp", "programmatic_tool_calling",
    }
)  # fmt: skip

_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
_TEXT_ARGUMENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's whole input, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class ToolKind(StrEnum):
    """How a call of the tool is given to the client."""

    FUNCTION = "function"
    CUSTOM = "custom"
    TOOL_SEARCH = "tool_search"


@dataclass(frozen=True, slots=True)
class Address:
    """What a client calls a tool: its kind, its namespace ("" for none) and its name there."""

    kind: ToolKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class FlatTool:
    """A tool as the model sees it.

    Attributes:
        name: flat name, of letters, digits, ``_`` and ``-``, at most 64 characters.
        description: what it does.
        parameters_json: JSON schema of its arguments, canonical JSON.
        address: what the client calls it.
        strict: whether every keyword of the schema must be enforced.
    """

    name: str
    description: str
    parameters_json: str
    address: Address
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a conversation, in order, each with a name of its own. Immutable; ``extended`` appends.

    A flat name is the tool's name, after its namespace and ``__`` where it has one, with ``_`` for what models can't write. A
    tool whose name is taken gets a digest of its address behind it. So names depend on the tools before them alone, and stay.
    """

    tools: tuple[FlatTool, ...] = ()

    @classmethod
    def parse(cls, raw: Sequence[Mapping[str, Any]], param: str = "tools") -> ToolSet:
        """Tools of a request. Hosted tools are left out.

        Raises TidemillError(INVALID_TOOLS) that names the tool and what is wrong with it.
        """
        tools, added = cls().extended(raw, param)
        if len(tools.tools) < len(added):
            (twice, _), *_ = Counter(tool.address for tool in added).most_common(1)
            raise _refused(param, _shown(twice), "is listed twice")
        return tools

    def extended(self, raw: Sequence[Mapping[str, Any]], param: str) -> tuple[ToolSet, tuple[FlatTool, ...]]:
        """This set with the tools of ``raw`` after it, and those tools.

        A tool known already keeps its name and place and takes the new schema. Raises as ``parse`` does.
        """
        known = {tool.address: tool for tool in self.tools}
        taken = {tool.name for tool in self.tools}
        added: list[FlatTool] = []
        for tool in _flattened(raw, param):
            if len(added) >= MAX_TOOLS:  # before the rest is looked at: each schema costs milliseconds of everyone's time
                raise TidemillError(Reason.INVALID_TOOLS, f"more than {MAX_TOOLS} tools; at most {MAX_TOOLS} are taken", param)
            name = known[tool.address].name if tool.address in known else _free_name(tool.address, taken)
            tool = replace(tool, name=name)
            taken.add(name)
            known[tool.address] = tool
            added.append(tool)
        if len(known) > MAX_TOOLS:
            raise TidemillError(Reason.INVALID_TOOLS, f"{len(known)} tools; at most {MAX_TOOLS} are taken", param)
        return ToolSet(tuple(known.values())), tuple(added)

    def by_name(self, flat: str) -> FlatTool | None:
        """The tool of that flat name."""
        return next((tool for tool in self.tools if tool.name == flat), None)

    def flat_name(self, address: Address) -> str:
        """Flat name of ``address``; for a tool that is not in the set, the name it would have alone."""
        found = next((tool.name for tool in self.tools if tool.address == address), None)
        return found or _plain_name(address)

    def select(self, choice: ToolChoice) -> tuple[FlatTool, ...]:
        """Tools that the model may call under ``choice``: none for mode none.

        Raises TidemillError(INVALID_REQUEST, param tool_choice) for a tool that is not there, or required without tools.
        """
        if choice.mode is ChoiceMode.NONE:
            return ()
        selected = self.tools if choice.only is None else self._named(choice.only)
        if choice.mode is ChoiceMode.REQUIRED and not selected:
            raise TidemillError(Reason.INVALID_REQUEST, "tool_choice requires a call, but no tools are given", "tool_choice")
        return selected

    def _named(self, names: Sequence[NamedTool]) -> tuple[FlatTool, ...]:
        for named in names:
            if not any(_matches(tool, named) for tool in self.tools):
                message = f"tool_choice names {named.type} {named.name!r}, which is not among the tools"
                raise TidemillError(Reason.INVALID_REQUEST, message, "tool_choice")
        return tuple(tool for tool in self.tools if any(_matches(tool, named) for named in names))

    def digest(self) -> bytes:
        """16 bytes that name the set's rendering: equal sets render equally."""
        rendered = [[tool.name, tool.description, tool.parameters_json] for tool in self.tools]
        return blake2b(schemas.canonical(rendered).encode(), digest_size=16).digest()


async def check_beside(lists: Sequence[Any], inline_values: int) -> None:
    """Check the schemas of tool lists in a thread where they hold more than ``inline_values`` JSON values.

    What is found is kept for whoever reads the lists next, and raised there; each schema costs milliseconds of everyone's time.
    """
    if not schemas.nodes_exceed(list(lists), inline_values):
        return
    for raw in lists:
        with contextlib.suppress(TidemillError):
            await asyncio.to_thread(ToolSet().extended, raw, "tools")


def _matches(tool: FlatTool, named: NamedTool) -> bool:
    if named.type == ToolKind.TOOL_SEARCH:
        return tool.address.kind is ToolKind.TOOL_SEARCH
    if tool.address.kind.value != named.type:
        return False
    if named.namespace:
        return (tool.address.namespace, tool.address.name) == (named.namespace, named.name)
    return named.name in (tool.address.name, tool.name)


def _plain_name(address: Address) -> str:
    prefix = f"{address.namespace}__" if address.namespace not in ("", DEFAULT_NAMESPACE) else ""
    name = _UNSAFE.sub("_", prefix + address.name)
    return name if len(name) <= MAX_NAME else _tagged(name, address)


def _free_name(address: Address, taken: set[str]) -> str:
    name = _plain_name(address)
    return name if name not in taken else _tagged(name, address)


def _tagged(name: str, address: Address) -> str:
    """``name`` with a digest of ``address``, cut to fit: 40 bits keep the tools of one conversation apart."""
    tag = blake2b("\0".join(("tool", address.kind, address.namespace, address.name)).encode(), digest_size=5).hexdigest()
    return f"{name[: MAX_NAME - len(tag) - 1]}_{tag}"


def _flattened(raw: Sequence[Any], param: str, namespace: str = "") -> Iterator[FlatTool]:
    """The function tools of a Responses tool list, in order; names are still to be given."""
    for index, spec in enumerate(raw):
        where = f"{param}[{index}]"
        kind = str(spec.get("type")) if isinstance(spec, Mapping) else ""
        if kind == "namespace" and not namespace:
            yield from _flattened(_nested(spec, where), f"{where}.tools", _name(spec, where))
        elif kind in ("function", "custom"):
            yield _callable(spec, ToolKind(kind), namespace, where)
        elif kind == "tool_search":
            if spec.get("execution") == "client":
                yield _search(spec, where)
        elif kind not in HOSTED:
            raise _refused(where, f"of type {kind[:80]!r}", "is not supported; describe it as a function", f"{where}.type")


def _nested(spec: Mapping[str, Any], where: str) -> Sequence[Mapping[str, Any]]:
    nested = spec.get("tools")
    if not isinstance(nested, list):
        raise _refused(where, repr(spec.get("name")), "is a namespace without a list of tools", f"{where}.tools")
    return nested


def _callable(spec: Mapping[str, Any], kind: ToolKind, namespace: str, where: str) -> FlatTool:
    if isinstance(spec.get("function"), Mapping):
        raise _refused(
            where, repr(spec["function"].get("name")), "has the shape of Chat Completions; give its fields beside `type`"
        )
    address = Address(kind, namespace, _name(spec, where))
    if kind is ToolKind.CUSTOM:
        return FlatTool("", _description(spec, where), schemas.canonical(_TEXT_ARGUMENT), address)
    strict = spec.get("strict") is True
    return FlatTool("", _description(spec, where), _parameters(spec, strict, where), address, strict)


def _search(spec: Mapping[str, Any], where: str) -> FlatTool:
    named = {**spec, "name": SEARCH_NAME}
    return FlatTool(
        "", _description(named, where), _parameters(named, False, where), Address(ToolKind.TOOL_SEARCH, "", SEARCH_NAME)
    )


def _name(spec: Mapping[str, Any], where: str) -> str:
    name = spec.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 256:
        raise _refused(where, repr(name)[:80], "must have a name of 1 to 256 characters", f"{where}.name")
    return name


def _description(spec: Mapping[str, Any], where: str) -> str:
    description = spec.get("description") or ""
    if not isinstance(description, str):
        raise _refused(where, repr(spec.get("name")), "has a description that is no string", f"{where}.description")
    return description


def _parameters(spec: Mapping[str, Any], strict: bool, where: str) -> str:
    """The schema of a tool's arguments as canonical JSON, checked."""
    parameters = spec.get("parameters")
    if parameters is None:
        parameters = _NO_ARGUMENTS
    field, shown = f"{where}.parameters", repr(spec.get("name"))
    if not isinstance(parameters, Mapping):
        raise _refused(where, shown, "has parameters that are no JSON schema object", field)
    if schemas.depth_exceeds(parameters, schemas.MAX_SCHEMA_DEPTH):
        raise _refused(where, shown, f"has parameters that nest deeper than {schemas.MAX_SCHEMA_DEPTH}", field)
    text = schemas.canonical({"type": "object", **parameters})
    if len(text) > schemas.MAX_SCHEMA_BYTES:
        raise _refused(where, shown, f"has parameters of {len(text)} characters, more than {schemas.MAX_SCHEMA_BYTES}", field)
    if wrong := schemas.problem(text, strict):
        raise _refused(where, shown, f"has unusable parameters: {wrong}", field)
    return text


def _shown(address: Address) -> str:
    return repr(f"{address.namespace}.{address.name}" if address.namespace else address.name)


def _refused(where: str, tool: str, problem: str, param: str | None = None) -> TidemillError:
    return TidemillError(Reason.INVALID_TOOLS, f"tool {tool} {problem}", param or where)
