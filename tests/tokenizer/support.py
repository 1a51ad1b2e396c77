"""Small models of each family, trained in a second on the standard library's text."""

from __future__ import annotations

import functools
import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.tokenizer import templates
from tidemill_common.model_dir import ModelProfile
from tidemill_tokenizer import pretokenizers
from tidemill_tokenizer.items import Item, Tool
from tidemill_tokenizer.renderer import Renderer

DIGITS = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)


def split(regex: str) -> pre_tokenizers.PreTokenizer:
    """A pre-tokenizer as Qwen's and Llama's tokenizer.json have it."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


QWEN2 = split(pretokenizers.QWEN2_REGEX)
LLAMA3 = split(pretokenizers.LLAMA3_REGEX)

_CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_QWEN = [*_CHATML, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
_LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]

# name -> family, pre-tokenizer, added tokens, template, beginning-of-text token
MODELS: dict[str, tuple[str, Any, list[str], str, str]] = {
    "chatml": ("chatml", DIGITS, _CHATML, templates.CHATML, ""),
    "qwen2.5": ("qwen", QWEN2, _QWEN, templates.QWEN25, ""),
    "qwen3": ("qwen", QWEN2, _QWEN, templates.QWEN3, ""),
    "thinking": ("qwen", QWEN2, _QWEN, templates.THINKING, ""),
    "llama3.1": ("llama3", LLAMA3, _LLAMA, templates.LLAMA31, "<|begin_of_text|>"),
    "llama3": ("llama3", LLAMA3, _LLAMA, templates.LLAMA3, "<|begin_of_text|>"),
}


@functools.cache
def stdlib(count: int) -> tuple[str, ...]:
    """Texts of ``count`` modules, spread over the whole standard library."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*/*.py"))
    return tuple(file.read_text(encoding="utf-8", errors="replace") for file in files[:: max(1, len(files) // count)][:count])


def train(pre_tokenizer: Any, added: Sequence[str] = (), normalizer: Any = None, size: int = 1500) -> dict[str, Any]:
    """A tokenizer.json, parsed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=list(added), show_progress=False)
    tokenizer.train_from_iterator([text[:20_000] for text in stdlib(12)], trainer)
    spec: dict[str, Any] = json.loads(tokenizer.to_str())
    return spec


def write_model(directory: Path, name: str) -> Path:
    """A model directory without weights."""
    family, pre_tokenizer, added, template, bos = MODELS[name]
    normalizer = normalizers.NFC() if family == "qwen" else None
    spec = train(pre_tokenizer, added, normalizer)
    end = next(token["id"] for token in spec["added_tokens"] if token["content"] in ("<|im_end|>", "<|eot_id|>"))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(spec))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos, "chat_template": template}))
    ModelProfile(name, family, "f" * 32, 4096, (end,)).save(directory)
    return directory


class Chat:
    """A conversation that a test renders part by part, shown as text."""

    def __init__(self, renderer: Renderer, instructions: str = "", tools: Sequence[Tool] = ()) -> None:
        self.renderer = renderer
        self.instructions, self.tools = instructions, tuple(tools)
        self.state = b""
        self.ids: list[int] = []

    def add(self, *items: Item, open_turn: bool = False) -> str:
        """Text of the ids that these items append."""
        rendered = self.renderer.render(self.state, self.instructions, self.tools, items, open_turn)
        self.state = rendered.state
        self.ids += rendered.ids
        return self.show(rendered.ids)

    def show(self, ids: Sequence[int]) -> str:
        """Ids as text."""
        return self.renderer.vocabulary.decode(ids).decode("utf-8", "replace")

    def sampled(self, text: str, *, end: bool) -> tuple[int, ...]:
        """Ids of a generated turn."""
        closing = self.renderer.encoder.special_ids[self.renderer.family.end_of_turn]
        return (*self.renderer.encoder.encode(text), *([closing] if end else []))
