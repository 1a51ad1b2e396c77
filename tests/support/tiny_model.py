"""A model directory that loads in no time: a Llama of random weights over bytes."""

from __future__ import annotations

import json
from pathlib import Path

from tidemill_common.model_dir import ModelProfile
from tidemill_common.vocabulary import byte_alphabet

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_TOKEN = 2
VOCABULARY_SIZE = len(SPECIAL) + 256
CONTEXT_LENGTH = 1024


def make_tiny_model(directory: Path, seed: int = 0, layers: int = 2) -> Path:
    """Write the model into ``directory`` and return it. Equal seeds give equal weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=END_TOKEN,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text(json.dumps(_tokenizer()), encoding="utf-8")
    ModelProfile(
        name=f"tiny-{seed}",
        family="chatml",
        fingerprint=f"tiny{seed}x{layers}",
        context_length=CONTEXT_LENGTH,
        end_token_ids=(END_TOKEN,),
        source="random weights for tests",
    ).save(directory)
    return directory


def _tokenizer() -> dict[str, object]:
    """A byte-level BPE without merges: the id of a byte is 3 more than its value."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": n, "content": text, **flags} for n, text in enumerate(SPECIAL)]
    vocab = {char: byte + len(SPECIAL) for char, byte in byte_alphabet().items()}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level, "model": model}
