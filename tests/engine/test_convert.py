from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from tests.engine import gguf_files
from tidemill_common.errors import Reason, TidemillError
from tidemill_engine.convert import convert, unpermute
from tidemill_engine.gguf import GgufFile


def _convert(path: Path, target: Path) -> list[tuple[str, int, int]]:
    target.mkdir()
    told: list[tuple[str, int, int]] = []
    with GgufFile(path) as file:
        convert(file, target, lambda what, done, total: told.append((what, done, total)))
    return told


def _permute(weights: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """As llama.cpp's convert_hf_to_gguf.py does."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


@pytest.mark.parametrize(("heads", "shape"), [(1, (4, 3)), (3, (24, 5)), (2, (8,))])
def test_unpermute_undoes_llama_cpps_order(heads: int, shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).normal(size=shape)
    np.testing.assert_array_equal(unpermute(_permute(rows, heads), heads), rows)


@pytest.mark.requirement("model:convert")
def test_a_gguf_file_becomes_a_directory_with_its_weights_under_hugging_faces_names(tmp_path: Path) -> None:
    told = _convert(gguf_files.tiny(tmp_path / "m.gguf"), tmp_path / "m")
    weights, source = load_file(tmp_path / "m" / "model.safetensors"), gguf_files.tensors()
    down = np.frombuffer(source["blk.1.ffn_down.weight"][2], "<f4").reshape(8, 16)
    query = np.frombuffer(source["blk.0.attn_q.weight"][2], "<f4").reshape(8, 8)
    np.testing.assert_array_equal(weights["model.layers.1.mlp.down_proj.weight"], down)
    np.testing.assert_array_equal(_permute(weights["model.layers.0.self_attn.q_proj.weight"], 2), query)
    assert len(weights) == len(source)
    assert told[-1][1] == told[-1][2] > 0
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["rms_norm_eps"], config["rope_theta"], config["tie_word_embeddings"]) == (1e-5, 100000.0, True)
    assert (config["head_dim"], config["num_key_value_heads"], config["max_position_embeddings"]) == (4, 1, 64)


def test_qwen_rows_keep_their_order_and_an_output_matrix_unties(tmp_path: Path) -> None:
    tensors = gguf_files.tensors()
    tensors["output.weight"] = tensors["token_embd.weight"]
    path = gguf_files.write(tmp_path / "m.gguf", gguf_files.metadata(general__architecture="qwen2"), tensors)
    _convert(path, tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    query = np.frombuffer(tensors["blk.0.attn_q.weight"][2], "<f4").reshape(8, 8)
    np.testing.assert_array_equal(weights["model.layers.0.self_attn.q_proj.weight"], query)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["tie_word_embeddings"] is False


def test_half_floats_stay_half_floats(tmp_path: Path) -> None:
    tensors = gguf_files.tensors()
    kind, shape, raw = tensors["token_embd.weight"]
    half = np.frombuffer(raw, "<f4").astype("<f2")
    tensors["token_embd.weight"] = ("F16", shape, half.tobytes())
    path = gguf_files.write(tmp_path / "m.gguf", gguf_files.metadata(), tensors)
    _convert(path, tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    np.testing.assert_array_equal(weights["model.embed_tokens.weight"].reshape(-1), half)
    assert kind == "F32"


@pytest.mark.requirement("model:refusal")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"general__architecture": "gemma3"},
            r"architecture 'gemma3' is not supported; supported are \['llama', 'qwen2', 'qwen3'\]",
        ),
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer 'llama' is not supported"),
        ({"tokenizer__ggml__pre": "deepseek-v3"}, "pre-tokenizer 'deepseek-v3' is not supported; supported are"),
        ({"tokenizer__chat_template": None}, "no chat template"),
        ({"llama__rope__scaling__type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama__context_length": None}, "lacks 'llama.context_length'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = gguf_files.tiny(tmp_path / "m.gguf", **changed)
    with pytest.raises(TidemillError, match=message) as caught:
        _convert(path, tmp_path / "m")
    assert caught.value.reason is Reason.MODEL_UNSUPPORTED


def test_unsupported_tensors_are_refused_by_name(tmp_path: Path) -> None:
    tensors = gguf_files.tensors()
    tensors["blk.0.attn_q.weight"] = ("Q4_K", (256,), bytes(144))
    path = gguf_files.write(tmp_path / "m.gguf", gguf_files.metadata(), tensors)
    with pytest.raises(TidemillError, match="quantisation Q4_K is not supported; supported are F32"):
        _convert(path, tmp_path / "m")
    path = gguf_files.write(
        tmp_path / "n.gguf", gguf_files.metadata(), {"blk.0.ssm_a": gguf_files.tensors()["output_norm.weight"]}
    )
    with pytest.raises(TidemillError, match=r"tensor 'blk.0.ssm_a' belongs to no supported model"):
        _convert(path, tmp_path / "n")


def test_the_tokenizer_splits_digits_as_the_models_own_does(tmp_path: Path) -> None:
    _convert(gguf_files.tiny(tmp_path / "m.gguf"), tmp_path / "m")
    tokenizer = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    own = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    for text in ("\n\n1. foo", "x  12", "    3: 4", "ab ab"):
        assert tokenizer.pre_tokenizer.pre_tokenize_str(text) == own.pre_tokenize_str(text)
    assert tokenizer.encode("<|im_start|>ab<|im_end|>").tokens == ["<|im_start|>", "ab", "<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode("ab č\n").ids) == "ab č\n"


@pytest.mark.model
@pytest.mark.requirement("model:default")
def test_the_default_model_speaks_english(smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    assert tokenizer.decode(output[0][prompt["input_ids"].shape[1] :]) == "The capital of France is Paris.<|im_end|>"
