from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_tokenizer.writer import WINDOW, Writer

SPECIALS = {"<a>": 7, "<a>b": 8}


def test_names_are_tokens_in_glue_and_plain_in_text() -> None:
    writer = Writer(SPECIALS)
    writer.glue("x<a>b")
    writer.text("<a>")
    writer.flush()
    assert writer.pieces == ["x", (8,), "<a>"]


def test_text_in_a_row_is_one_piece() -> None:
    writer = Writer(SPECIALS, "held ")
    writer.glue("x ")
    writer.text("y")
    writer.ids([1, 2])
    assert writer.pieces == ["held x y", (1, 2)]


def test_the_tail_is_held_from_the_last_cut_between_words() -> None:
    writer = Writer({})
    writer.text("one two three\n  ")
    writer.hold_tail()
    assert (writer.pieces, writer.pending) == (["one two"], " three\n  ")


def test_a_short_text_without_a_cut_is_held_whole_and_a_long_one_not_at_all() -> None:
    short, long = Writer({}), Writer({})
    short.text("x" * WINDOW)
    long.text("x" * (WINDOW + 1))
    short.hold_tail()
    long.hold_tail()
    assert (short.pieces, short.pending) == ([], "x" * WINDOW)
    assert (long.pieces, long.pending) == (["x" * (WINDOW + 1)], "")


@given(text=st.text(alphabet="ab \n1", max_size=400))
def test_holding_loses_nothing_and_holds_little(text: str) -> None:
    writer = Writer({})
    writer.text(text)
    writer.hold_tail()
    assert "".join(piece for piece in writer.pieces if isinstance(piece, str)) + writer.pending == text
    assert len(writer.pending) <= WINDOW


def test_lone_surrogates_become_the_replacement_character() -> None:
    writer = Writer({})
    writer.text("a\udc80")
    assert writer.pending == "a\ufffd"
