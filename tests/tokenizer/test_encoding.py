from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tests.tokenizer.support import DIGITS, GPT2, LLAMA3, QWEN2, stdlib, train
from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer import encoding
from tidemill_tokenizer.encoding import Encoder
from tidemill_tokenizer.renderer import Renderer

PROSE = """Sitting on the shore at 5:47, she counted 1,024 shells… “Nonsense!” — he'd said; they're  fine.\r\n\r\n\t1. Tide
\n  2.\u00a0Mill Γειά σου Κόσμε. Здравствуй, мир! שלום עולם مرحبا بالعالم ٣٤٥ नमस्ते दुनिया สวัสดีชาวโลก
你好，世界。 こんにちは世界 안녕하세요 Xin chào thế giới ქართული አማርኛ
e\u0301 vs é, ﬁ, Å vs A\u030a, Ⅷ, ½, ²³, ᄒ\u1161\u11ab, \U0001f469\u200d\U0001f680\U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea
\U0001f916  \U0001f916\u200b\u200d\ufeff zero\u2028line\u2029para\x85next
I'LL WE'RE it's 'tis don'T 'ſ x'd 'S 's'd ''' `code` {"a": [1, 22, 333, 4444]} a/b\\c <|not_special|> <|im_end <tool> $%^&*()_+
"""
CONTROLS = "".join(map(chr, range(0x20))) + "\x7f" + "".join(map(chr, range(0x80, 0xA0)))
texts = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=60).map(lambda data: data.decode("utf-8", "replace")),
    st.binary(max_size=60).map(lambda data: data.decode("latin-1")),
    st.text(alphabet=" \n\t\r1２a'sé.\x04\x06\U00040000中", max_size=40),
)
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def reference(directory: Path, pre_tokenizer: Any = None) -> Callable[[str], list[int]]:
    """What `tokenizers` makes of a text with the model's file, where names of special tokens are plain text."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def load(directory: Path) -> Encoder:
    return encoding.load(directory)[0]


def save(directory: Path, spec: dict[str, Any]) -> Path:
    (directory / "tokenizer.json").write_text(json.dumps(spec))
    return directory


@pytest.fixture(scope="session")
def default(smollm2: Path, default_renderer: Renderer) -> tuple[Encoder, Callable[[str], list[int]]]:
    return default_renderer.encoder, reference(smollm2, DIGITS)


@pytest.mark.model
@pytest.mark.requirement("tokenizer:exact-encoding")
def test_the_default_model_is_encoded_by_tiktoken_as_tokenizers_does_on_code(
    default: tuple[Encoder, Callable[[str], list[int]]],
) -> None:
    encoder, expected = default
    assert encoder.name == "tiktoken"
    different = [text[:80] for text in stdlib(60) if encoder.encode(text) != expected(text)]
    assert different == []


@pytest.mark.model
@pytest.mark.requirement("tokenizer:exact-encoding")
@pytest.mark.parametrize(
    "text", [PROSE, CONTROLS, CONTROLS.join("ab"), ".\x04.", "a\x13\x14b", "x" * 30_000, " " * 30_000 + "1"]
)
def test_the_default_model_is_encoded_exactly_on_scripts_emoji_and_controls(
    default: tuple[Encoder, Callable[[str], list[int]]], text: str
) -> None:
    encoder, expected = default
    assert encoder.encode(text) == expected(text)


@pytest.mark.model
@pytest.mark.requirement("tokenizer:exact-encoding")
def test_the_default_model_is_encoded_exactly_on_every_assigned_code_point(
    default: tuple[Encoder, Callable[[str], list[int]]],
) -> None:
    encoder, expected = default
    points = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    for start in range(0, len(points), 997):
        text = "a ".join(points[start : start + 997])
        assert encoder.encode(text) == expected(text), text


@pytest.mark.model
@pytest.mark.requirement("tokenizer:exact-encoding")
@quick
@given(text=texts)
def test_the_default_model_is_encoded_exactly_on_random_text(
    default: tuple[Encoder, Callable[[str], list[int]]], text: str
) -> None:
    encoder, expected = default
    ids = encoder.encode(text)
    assert ids == expected(text)
    assert all(token < 49_152 for token in ids)


@pytest.fixture(scope="session", params=["gpt2", "digits", "qwen2", "llama3"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pre_tokenizer = {"gpt2": GPT2, "digits": DIGITS, "qwen2": QWEN2, "llama3": LLAMA3}[request.param]
    normalizer = normalizers.NFC() if request.param == "qwen2" else None
    return save(tmp_path_factory.mktemp(request.param), train(pre_tokenizer, ["<|end|>"], normalizer))


@pytest.fixture(scope="session")
def both(trained: Path) -> tuple[Encoder, Callable[[str], list[int]]]:
    return load(trained), reference(trained)


@pytest.mark.requirement("tokenizer:exact-encoding")
def test_each_known_pre_tokenizer_is_encoded_by_tiktoken_as_tokenizers_does(
    both: tuple[Encoder, Callable[[str], list[int]]],
) -> None:
    encoder, expected = both
    assert (encoder.name, encoder.note) == ("tiktoken", "")
    for text in (PROSE, CONTROLS, *stdlib(12)):
        assert encoder.encode(text) == expected(text)


@pytest.mark.requirement("tokenizer:exact-encoding")
@quick
@given(text=texts)
def test_each_known_pre_tokenizer_is_encoded_exactly_on_random_text(
    both: tuple[Encoder, Callable[[str], list[int]]], text: str
) -> None:
    encoder, expected = both
    assert encoder.encode(text) == expected(text)


def without_bytes(spec: dict[str, Any], *characters: str) -> dict[str, Any]:
    """``spec`` whose vocabulary lacks single-byte tokens that no merge uses."""
    vocab = {text: token for text, token in spec["model"]["vocab"].items() if text not in characters}
    return {**spec, "model": {**spec["model"], "vocab": vocab}}


def test_neighbours_of_a_byte_without_a_token_merge_as_in_tokenizers(tmp_path: Path) -> None:
    directory = save(tmp_path, without_bytes(train(DIGITS), "Ą", "ñ"))
    encoder, expected = load(directory), reference(directory)
    assert encoder.name == "tiktoken"
    for text in ("=\x04=", "a\x04b", " \x04a", ".\U00040000.", "==\U0007ffff=="):
        assert encoder.encode(text) == expected(text)
    assert encoder.encode("=\x04=") == encoder.encode("==")


def test_white_space_beyond_what_tiktoken_can_take_is_encoded(tmp_path: Path) -> None:
    encoder, vocabulary = encoding.load(save(tmp_path, train(GPT2)))
    text = " " * 1_000_001 + "x"
    assert encoder.name == "tiktoken"
    assert vocabulary.decode(encoder.encode(text)) == text.encode()


def test_lone_surrogates_read_as_the_replacement_character(both: tuple[Encoder, Callable[[str], list[int]]]) -> None:
    encoder, _ = both
    assert encoder.encode("a\ud800é") == encoder.encode("a\ufffdé")


def fallback(tmp_path: Path, spec: dict[str, Any]) -> Encoder:
    directory = save(tmp_path, spec)
    encoder, expected = load(directory), reference(directory)
    assert encoder.name == "tokenizers"
    for text in (PROSE, CONTROLS, *stdlib(5)):
        assert encoder.encode(text) == expected(text)
    return encoder


@pytest.mark.requirement("tokenizer:fallback")
def test_merges_out_of_order_are_served_through_tokenizers(tmp_path: Path) -> None:
    spec = train(GPT2)
    spec["model"]["merges"] = [*spec["model"]["merges"][1:], spec["model"]["merges"][0]]
    assert "out of the order" in fallback(tmp_path, spec).note


@pytest.mark.requirement("tokenizer:fallback")
def test_tokens_that_merging_does_not_reach_are_served_through_tokenizers(tmp_path: Path) -> None:
    spec = train(GPT2)
    spec["model"]["vocab"]["import"] = spec["model"]["vocab"].get("import", len(spec["model"]["vocab"]))
    spec["model"]["merges"] = [pair for pair in spec["model"]["merges"] if "".join(pair) != "import"]
    assert "not reached" in fallback(tmp_path, spec).note


@pytest.mark.requirement("tokenizer:fallback")
@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), GPT2]),
        pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), GPT2]),
    ],
    ids=["prefix-space", "digit-groups", "punctuation"],
)
def test_an_unknown_pre_tokenizer_is_served_through_tokenizers(tmp_path: Path, pre_tokenizer: Any) -> None:
    assert "pre-tokenizer" in fallback(tmp_path, train(pre_tokenizer)).note


@pytest.mark.requirement("tokenizer:fallback")
def test_a_normalizer_beyond_nfc_is_served_through_tokenizers(tmp_path: Path) -> None:
    assert "Lowercase" in fallback(tmp_path, train(GPT2, normalizer=normalizers.Lowercase())).note


def test_merges_that_list_every_split_are_sound_for_tiktoken(tmp_path: Path) -> None:
    spec = train(LLAMA3, ["<|end|>"])
    vocab = spec["model"]["vocab"]
    made = sorted((text for text in vocab if len(text) > 1 and text != "<|end|>"), key=vocab.get)
    splits = [(text[:cut], text[cut:]) for text in made for cut in range(1, len(text))]
    spec["model"] |= {"merges": [pair for pair in splits if pair[0] in vocab and pair[1] in vocab], "ignore_merges": True}
    directory = save(tmp_path, spec)
    encoder, expected = load(directory), reference(directory)
    assert encoder.name == "tiktoken"
    assert all(encoder.encode(text) == expected(text) for text in (PROSE, *stdlib(10)))


@pytest.mark.requirement("tokenizer:no-special-from-text")
@pytest.mark.parametrize("known", [True, False], ids=["tiktoken", "tokenizers"])
def test_the_name_of_a_special_token_in_text_is_plain_characters(tmp_path: Path, known: bool) -> None:
    pre_tokenizer = GPT2 if known else pre_tokenizers.ByteLevel(add_prefix_space=True)
    encoder = load(save(tmp_path, train(pre_tokenizer, ["<|end|>"])))
    assert encoder.name == ("tiktoken" if known else "tokenizers")
    ids = encoder.encode("a<|end|>b <|end|>")
    assert encoder.special_ids == {"<|end|>": 0}
    assert 0 not in ids


@pytest.mark.model
@pytest.mark.requirement("tokenizer:no-special-from-text")
def test_no_special_token_of_the_default_model_comes_from_text(default: tuple[Encoder, Callable[[str], list[int]]]) -> None:
    encoder, _ = default
    text = " x ".join(encoder.special_ids)
    assert not set(encoder.encode(text)) & set(encoder.special_ids.values())


def test_a_missing_or_foreign_tokenizer_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(TidemillError) as missing:
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": {"a": 0}}}')
    with pytest.raises(TidemillError) as foreign:
        load(tmp_path)
    assert {missing.value.reason, foreign.value.reason} == {Reason.CONFIG}
    assert "Unigram" in foreign.value.message
