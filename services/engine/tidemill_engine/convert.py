"""A GGUF file to a model directory in Hugging Face's format.

Quantised tensors become float32, which holds what llama.cpp dequantises them to; F32, F16 and BF16 keep their type
(docs/decisions/model-directory.md). llama.cpp stores Llama's q and k rows in rope order; here they go back to Hugging Face's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill_engine import gguf_tokenizer, safetensors_file
from tidemill_engine.gguf import GgufFile, supported_types
from tidemill_engine.model_check import CONFIG_FILE, TEMPLATE_FILE, TOKENIZER_FILE, WEIGHTS_FILE, refused
from tidemill_engine.safetensors_file import Plan

Progress = Callable[[str, int, int], None]
"""Called with what is done, units done and units in all (0: unknown)."""

ARCHITECTURES: Mapping[str, str] = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_KEPT = {0: "F32", 1: "F16", 30: "BF16"}
_TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(file: GgufFile, directory: Path, progress: Progress) -> None:
    """Write config, tokenizer, chat template and weights of ``file`` into ``directory``.

    Raises TidemillError(MODEL_UNSUPPORTED) that names what is not supported.
    """
    check(file)
    config = model_config(file)
    _dump(directory / CONFIG_FILE, config)
    _dump(directory / TOKENIZER_FILE, gguf_tokenizer.tokenizer_json(file.metadata))
    _dump(
        directory / "tokenizer_config.json",
        gguf_tokenizer.tokenizer_config(file.metadata, config["max_position_embeddings"]),
    )
    (directory / TEMPLATE_FILE).write_text(file.metadata["tokenizer.chat_template"], encoding="utf-8")
    plans = [Plan(name, _dtype(file, source), file.tensors[source].shape) for source, name in _names(file).items()]
    safetensors_file.write(directory / WEIGHTS_FILE, plans, _tensors(file, config, progress))


def check(file: GgufFile) -> None:
    """Raise TidemillError(MODEL_UNSUPPORTED) that names what of ``file`` is not supported, and what is."""
    metadata, architecture = file.metadata, file.metadata.get("general.architecture")
    if int(metadata.get(f"{architecture}.expert_count", 0)):
        raise refused(f"mixture of experts ({architecture!r}) is not supported; dense {sorted(ARCHITECTURES)} models are")
    if architecture not in ARCHITECTURES:
        raise refused(f"the architecture {architecture!r} is not supported; supported are {sorted(ARCHITECTURES)}")
    if unsupported := file.unsupported():
        raise refused(f"the quantisation {', '.join(unsupported)} is not supported; supported are {supported_types()}")
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        kind = scaling if scaling != "none" else "llama3"
        raise refused(f"rope scaling {kind!r} in a GGUF file is not supported; the model's Hugging Face directory is")
    if "tokenizer.chat_template" not in metadata:
        raise refused("the file has no chat template; models tuned for chat are supported")
    gguf_tokenizer.check(metadata)
    _names(file)


def model_config(file: GgufFile) -> dict[str, Any]:
    """Content of config.json. Raises TidemillError(MODEL_UNSUPPORTED) when the file lacks a field."""
    metadata, architecture = file.metadata, file.metadata["general.architecture"]
    try:
        return _config_fields(file, metadata, architecture)
    except KeyError as error:
        raise refused(f"the file lacks {error.args[0]!r}") from error


def _config_fields(file: GgufFile, metadata: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    heads = int(metadata[f"{architecture}.attention.head_count"])
    hidden = int(metadata[f"{architecture}.embedding_length"])
    theta = _shortest(metadata.get(f"{architecture}.rope.freq_base", 10000.0))
    special = {f"{name}_token_id": metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": int(metadata[f"{architecture}.feed_forward_length"]),
        "num_hidden_layers": int(metadata[f"{architecture}.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get(f"{architecture}.attention.head_count_kv", heads)),
        "head_dim": int(metadata.get(f"{architecture}.attention.key_length", hidden // heads)),
        "max_position_embeddings": int(metadata[f"{architecture}.context_length"]),
        "rms_norm_eps": _shortest(metadata[f"{architecture}.attention.layer_norm_rms_epsilon"]),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "dtype": _TORCH_NAMES[_main_dtype(file)],
        **{name: token for name, token in special.items() if token is not None},
    }


_SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding"}


def _shortest(value: float) -> float:
    """The decimal that was meant: GGUF keeps 1e-05 as the float32 next to it."""
    return float(str(np.float32(value)))


def _main_dtype(file: GgufFile) -> str:
    counts: dict[str, int] = {}
    for name, info in file.tensors.items():
        counts[_dtype(file, name)] = counts.get(_dtype(file, name), 0) + prod(info.shape)
    return max(counts, key=lambda each: counts[each])


def _dtype(file: GgufFile, name: str) -> str:
    return _KEPT.get(file.tensors[name].type_id, "F32")


def _names(file: GgufFile) -> dict[str, str]:
    """Hugging Face's name of each tensor. Raises TidemillError(MODEL_UNSUPPORTED) for one that no supported model has."""
    return {name: _name(name) for name in file.tensors}


def _name(name: str) -> str:
    stem, _, part = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{part}"
    block = stem.split(".")
    if len(block) == 3 and block[0] == "blk" and block[1].isdigit() and block[2] in _LAYER:
        return f"model.layers.{block[1]}.{_LAYER[block[2]]}.{part}"
    raise refused(f"the tensor {name!r} belongs to no supported model")


def _tensors(file: GgufFile, config: dict[str, Any], progress: Progress) -> Iterator[npt.NDArray[Any]]:
    total = sum(prod(info.shape) for info in file.tensors.values())
    done = 0
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    permuted = config["model_type"] == "llama"
    for name, info in file.tensors.items():
        tensor = file.raw(name) if info.type_id in _KEPT else file.read(name)
        part = name.split(".")[-2]
        yield unpermute(tensor, heads[part]) if permuted and part in heads else tensor
        done += prod(info.shape)
        progress("Converting", done, total)


def unpermute(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of a q or k projection, or its bias, from llama.cpp's order (pairs i, i+1 rotate) to Hugging Face's (i, i+half)."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
