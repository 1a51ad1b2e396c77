from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_safety.normalise import normalise, normalise_command

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.requirement("safety:unicode-normalisation")
@pytest.mark.parametrize(
    "disguised",
    [
        "IGNORE ALL",
        "ｉｇｎｏｒｅ　ａｌｌ",
        "ig\u200bno\u2060re all",
        "ign\u00adore \ufeffall",
        "іgnоrе аll",
        "𝐢𝐠𝐧𝐨𝐫𝐞 𝒂𝒍𝒍",
        "ignore \t  all",
        "ig\x00nore all",
        "ignore\u00a0all",
        "\U000e0041ignore all",
    ],
)
def test_disguises_fold_to_one_spelling(disguised: str) -> None:
    assert normalise(disguised) == "ignore all"


def test_runs_of_white_space_keep_whether_a_line_ended() -> None:
    assert normalise("a  b \r\n\n  c\u2028d") == "a b\nc\nd"


@given(ANY_TEXT)
def test_the_result_is_encodable_lower_case_without_runs_of_blanks(text: str) -> None:
    result = normalise(text)
    result.encode("utf-8")
    assert "  " not in result
    assert not any("A" <= char <= "Z" for char in result)


@given(st.text("ab c\n", max_size=30), st.text("ab c\n", max_size=30))
def test_plain_text_before_is_a_prefix_of_the_whole_but_for_its_last_blank(before: str, after: str) -> None:
    assert normalise(before + after).startswith(normalise(before).rstrip(" \n"))


@pytest.mark.requirement("safety:unicode-normalisation")
@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"command": ["rm", "-rf", "/"]}),
        json.dumps({"command": 'r"m" -rf /'}),
        json.dumps({"command": "r\\m -r\\\nf /"}),
        r'{"command": "\u0072m -rf \/"}',
        '{"command": "rm -rf /',
    ],
)
def test_json_escapes_argument_lists_and_shell_quoting_are_read_through(arguments: str) -> None:
    assert "rm -rf /" in normalise_command(arguments)


@given(st.text(max_size=40))
def test_words_of_json_encoded_text_survive(text: str) -> None:
    assert "needle" in normalise_command(json.dumps({"key": f"{text} needle {text}"}))
