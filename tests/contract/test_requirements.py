"""Both directions between promises and tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parents[1]


def citations(path: Path) -> Iterator[str]:
    """Ids that a file cites with ``pytest.mark.requirement("id")``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            yield from (str(ast.literal_eval(argument)) for argument in node.args)


CITED = {name: path.relative_to(TESTS) for path in sorted(TESTS.rglob("*.py")) for name in citations(path)}


def test_every_built_promise_is_shown_by_a_test() -> None:
    built = {name for name, requirement in REQUIREMENTS.items() if not requirement.deferred}
    assert sorted(built - set(CITED)) == []


def test_every_cited_id_is_a_promise() -> None:
    assert {name: str(path) for name, path in CITED.items() if name not in REQUIREMENTS} == {}


def test_a_deferred_promise_is_not_cited() -> None:
    assert sorted(name for name in CITED if name in REQUIREMENTS and REQUIREMENTS[name].deferred) == []


def test_promises_are_one_sentence_and_ids_have_one_form() -> None:
    for name, requirement in REQUIREMENTS.items():
        assert re.fullmatch(r"[a-z0-9-]+:[a-z0-9-]+", name), name
        assert requirement.behaviour.endswith("."), name
        assert ". " not in requirement.behaviour, name
        assert not requirement.deferred or requirement.deferred.endswith("."), name
