from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway.detokenizer import Detokenizer

END = 256
VOCABULARY = Vocabulary((*(bytes([value]) for value in range(256)), b"<end>"), {"<end>": END})


def text_of(ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(VOCABULARY, [END])
    return [*map(detokenizer.push, ids), detokenizer.finish()]


@given(st.text().map(str.encode) | st.binary())
def test_text_is_that_of_all_bytes_at_once(data: bytes) -> None:
    assert "".join(text_of(list(data))) == data.decode("utf-8", "replace")


def test_an_unfinished_character_waits() -> None:
    assert text_of(list("é!".encode())) == ["", "é", "!", ""]
    assert text_of([0xE2, 0x82]) == ["", "", "\ufffd"]


def test_end_tokens_and_unknown_ids_have_no_text() -> None:
    assert text_of([ord("a"), END, 999, -1]) == ["a", "", "", "", ""]
