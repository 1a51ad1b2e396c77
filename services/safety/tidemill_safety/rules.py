"""Deny rules: patterns that refuse a text whatever the classifier thinks.

Patterns are RE2's (github.com/google/re2/wiki/Syntax), so a match takes time linear in the text's length whatever the pattern
and the text. They are matched against normalised text, which is lower case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import re2

from tidemill_common.errors import Reason, TidemillError

DEFAULT_RULES_FILE = Path(__file__).with_name("default_rules.json")
AUTOMATON_BYTES = 64 << 20

_FIELDS = {"id", "description", "directions", "patterns"}
_FRAGMENT = re.compile(r"%\{([\w-]+)\}")


class Direction(StrEnum):
    """Who wrote a text."""

    INPUT = "input"
    OUTPUT = "output"
    TOOL_ARGUMENTS = "tool_arguments"


@dataclass(frozen=True, slots=True)
class Rule:
    """One deny rule.

    Attributes:
        id: name in verdicts and metrics.
        description: what it refuses, for people.
        directions: the texts that it is matched against.
        patterns: RE2 syntax for normalised text; each of them refuses.
    """

    id: str
    description: str
    directions: frozenset[Direction]
    patterns: tuple[str, ...]


class RuleSet:
    """Rules compiled into one automaton, which reads a text once for all of them."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._owners = [(rule, compile_pattern(rule.id, pattern)) for rule in rules for pattern in rule.patterns]
        self._set = re2.Set.SearchSet(_options())
        for _, pattern in self._owners:
            self._set.Add(pattern.pattern)
        self._set.Compile()

    def first_match(self, text: str, start: int = 0) -> Rule | None:
        """The first rule with a match in normalised ``text`` that ends after index ``start``."""
        if not self._owners:
            return None
        hits: list[int] = sorted(self._set.Match(text) or ())
        for index in hits:
            rule, pattern = self._owners[index]
            if any(match.end() > start for match in pattern.finditer(text)):
                return rule
        return None


def load_rules(path: Path = DEFAULT_RULES_FILE) -> list[Rule]:
    """Rules of a JSON file ``{"fragments": {name: pattern}, "rules": [{"id", "description", "directions", "patterns"}]}``.

    ``%{name}`` in a pattern stands for a fragment. Raises TidemillError(CONFIG) that names the rule at fault.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rules = [_rule(entry, data.get("fragments", {})) for entry in data["rules"]]
        if len({rule.id for rule in rules}) < len(rules):
            raise ValueError("two rules have one id")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TidemillError(Reason.CONFIG, f"rules file {str(path)!r} can't be used: {error!r}") from error
    return rules


def compile_pattern(rule_id: str, pattern: str) -> Any:
    """The compiled pattern. Raises ValueError when RE2 refuses it or it would refuse every text."""
    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        raise ValueError(f"rule {rule_id!r}: RE2 refuses {pattern!r}: {error}") from error
    if compiled.search("") is not None:
        raise ValueError(f"rule {rule_id!r}: {pattern!r} matches the empty text")
    return compiled


def _rule(entry: dict[str, Any], fragments: Mapping[str, str]) -> Rule:
    if set(entry) != _FIELDS or not entry["directions"] or not entry["patterns"]:
        raise ValueError(f"a rule has {sorted(_FIELDS)}, none of them empty; this is {entry!r}")
    directions = frozenset(Direction(name) for name in entry["directions"])
    patterns = tuple(_FRAGMENT.sub(lambda found: fragments[found[1]], pattern) for pattern in entry["patterns"])
    for pattern in patterns:
        compile_pattern(entry["id"], pattern)
    return Rule(entry["id"], entry["description"], directions, patterns)


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = AUTOMATON_BYTES
    return options
