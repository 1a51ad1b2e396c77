from __future__ import annotations

import json

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.vocabulary import Vocabulary
from tidemill_engine.grammar import GrammarCompiler

END = 0
WORDS = (b"<end>", *(bytes([byte]) for byte in range(256)), b"hello", b"")
SIZE = len(WORDS) + 5
VOCABULARY = Vocabulary(WORDS, {"<end>": END})


def encode(text: str) -> list[int]:
    """The vocabulary's own encoding: the one word as a whole, anything else byte by byte."""
    return [257] if text == "hello" else [1 + byte for byte in text.encode()]


@pytest.fixture
def compiler() -> GrammarCompiler:
    return GrammarCompiler(VOCABULARY, encode, [END], SIZE, capacity=2)


def allowed(compiler: GrammarCompiler, grammar: str, text: bytes = b"") -> set[int]:
    matcher = compiler.matcher(grammar)
    for byte in text:
        matcher.accept(1 + byte)
    return set(matcher.allowed().nonzero().flatten().tolist())


def test_only_what_the_grammar_permits_is_allowed(compiler: GrammarCompiler) -> None:
    grammar = 'start: "hi" | "hello"'
    assert allowed(compiler, grammar) == {1 + ord("h"), 257}
    assert allowed(compiler, grammar, b"h") == {1 + ord("i"), 1 + ord("e")}
    assert allowed(compiler, grammar, b"hi") == {END}


@pytest.mark.requirement("engine:canonical-forced-text")
def test_text_that_a_grammar_forces_is_written_in_the_models_own_encoding(compiler: GrammarCompiler) -> None:
    assert allowed(compiler, 'start: "hello"') == {257}


def test_a_token_outside_the_grammar_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(TidemillError) as caught:
        allowed(compiler, 'start: "hi"', b"x")
    assert caught.value.reason is Reason.INVALID_TOOLS
    assert "\n" not in caught.value.message


@pytest.mark.requirement("engine:bad-grammar")
@pytest.mark.parametrize("grammar", ["start: nothing", 'start: "', "start: %json " + json.dumps({"type": 3})])
def test_a_malformed_grammar_is_named(compiler: GrammarCompiler, grammar: str) -> None:
    with pytest.raises(TidemillError) as caught:
        compiler.matcher(grammar)
    assert caught.value.reason is Reason.INVALID_TOOLS


def test_matchers_of_one_grammar_are_independent_and_the_cache_is_bounded(compiler: GrammarCompiler) -> None:
    for word in ("ab", "cd", "ef", "ab"):
        first, second = compiler.matcher(f'start: "{word}"'), compiler.matcher(f'start: "{word}"')
        first.accept(1 + ord(word[0]))
        assert second.allowed().nonzero().flatten().tolist() == [1 + ord(word[0])]
    assert len(compiler) == 2
