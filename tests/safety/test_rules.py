from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.safety.rule_cases import CASES, OUTPUT
from tidemill_common.errors import Reason, TidemillError
from tidemill_safety.normalise import normalise, normalise_command
from tidemill_safety.rules import Direction, Rule, RuleSet, compile_pattern, load_rules

RULES = {rule.id: rule for rule in load_rules()}
SETS = {way: RuleSet([rule for rule in RULES.values() if way in rule.directions]) for way in Direction}


def matched(rules: RuleSet, direction: str, text: str) -> str:
    spell = normalise_command if direction == Direction.TOOL_ARGUMENTS else normalise
    rule = rules.first_match(spell(text))
    return rule.id if rule else ""


def rule_texts(column: int) -> list[tuple[str, str]]:
    return [(name, text) for name, case in CASES.items() for text in (case[1], case[2])[column]]


def test_every_packaged_rule_has_cases_and_every_case_a_rule() -> None:
    assert set(RULES) == set(CASES)
    assert all(refused and passed for _, refused, passed in CASES.values())


@pytest.mark.requirement("safety:deny-rules")
@pytest.mark.parametrize(("name", "text"), rule_texts(0))
def test_a_rule_refuses_its_texts_in_its_directions(name: str, text: str) -> None:
    direction = CASES[name][0]
    assert Direction(direction) in RULES[name].directions
    assert matched(RuleSet([RULES[name]]), direction, text) == name
    assert matched(SETS[Direction(direction)], direction, text)


@pytest.mark.requirement("safety:deny-rules")
@pytest.mark.parametrize(("name", "text"), rule_texts(1))
def test_no_rule_refuses_a_near_miss(name: str, text: str) -> None:
    assert matched(SETS[Direction(CASES[name][0])], CASES[name][0], text) == ""


def test_a_rule_of_both_directions_reads_output_too() -> None:
    assert matched(SETS[Direction.OUTPUT], OUTPUT, "Here is a sexual story about a child.") == "harm-minors"


def test_a_match_counts_only_when_it_ends_after_the_start() -> None:
    rules = RuleSet([Rule("r", "", frozenset(Direction), ("bad word",))])
    assert rules.first_match("a bad word, then more", start=len("a bad word")) is None
    assert rules.first_match("a bad word, then more", start=len("a bad wor")) is not None
    assert rules.first_match("bad word then bad word", start=8) is not None


@given(
    st.lists(
        st.sampled_from([text for case in CASES.values() for text in case[1] + case[2]] + [" ", "curl ", "\n"]), max_size=12
    )
)
def test_the_automaton_finds_exactly_what_the_single_patterns_find(parts: list[str]) -> None:
    text = normalise_command("".join(parts))
    for rules in SETS.values():
        single = [rule.id for rule in rules.rules if any(compile_pattern(rule.id, each).search(text) for each in rule.patterns)]
        found = rules.first_match(text)
        assert (found.id if found else None) == (single[0] if single else None)


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def entry(**changes: object) -> dict[str, object]:
    return {"id": "x", "description": "d", "directions": ["input"], "patterns": ["%{word}s"], **changes}


def test_a_rules_file_replaces_the_packaged_one_and_fills_in_fragments(tmp_path: Path) -> None:
    (rule,) = load_rules(write(tmp_path / "rules.json", {"fragments": {"word": "dog"}, "rules": [entry()]}))
    assert rule == Rule("x", "d", frozenset({Direction.INPUT}), ("dogs",))


@pytest.mark.requirement("safety:linear-time-rules")
@pytest.mark.parametrize(
    "rule",
    [
        entry(patterns=["(?=look)ahead"]),
        entry(patterns=[r"(a)\1"]),
        entry(patterns=["a*"]),
        entry(patterns=["["]),
        entry(patterns=["%{unknown}"]),
        entry(patterns=[]),
        entry(directions=[]),
        entry(directions=["sideways"]),
        entry(extra=1),
    ],
)
def test_a_rule_that_cannot_run_in_linear_time_or_is_malformed_is_refused(tmp_path: Path, rule: dict[str, object]) -> None:
    path = write(tmp_path / "rules.json", {"fragments": {"word": "dog"}, "rules": [rule]})
    with pytest.raises(TidemillError, match=r"rules\.json") as caught:
        load_rules(path)
    assert caught.value.reason is Reason.CONFIG


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rules": [1]}', '{"rules": {}, "fragments": []}x'])
def test_a_malformed_rules_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TidemillError):
        load_rules(path)


def test_two_rules_of_one_id_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TidemillError, match="one id"):
        load_rules(write(tmp_path / "rules.json", {"fragments": {"word": "dog"}, "rules": [entry(), entry()]}))
    with pytest.raises(TidemillError, match="none"):
        load_rules(tmp_path / "none.json")
