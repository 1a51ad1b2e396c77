from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine import hf_files
from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import model_check


def _edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_facts_come_from_config_tokenizer_and_generation_config(tmp_path: Path) -> None:
    facts = model_check.inspect(hf_files.model(tmp_path / "m"))
    assert facts == model_check.Facts("chatml", 64, (0, 2))
    assert model_check.inspect(hf_files.model(tmp_path / "q", model_type="qwen3")).family == "qwen"


@pytest.mark.requirement("model:refusal")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gemma3"}, "model type 'gemma3' is not supported; supported are llama, qwen2, qwen3"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, r"mixture of experts \('qwen3_moe'\)"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantisation 'awq' is not supported"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
    ],
)
def test_a_config_that_can_not_be_served_is_refused_by_name(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    directory = hf_files.model(tmp_path / "m", **config)
    with pytest.raises(TidemillError, match=message) as caught:
        model_check.inspect(directory)
    assert caught.value.reason is Reason.MODEL_UNSUPPORTED


@pytest.mark.requirement("model:refusal")
def test_pickled_weights_are_refused_by_name(tmp_path: Path) -> None:
    directory = hf_files.model(tmp_path / "m")
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(TidemillError, match=r"'pytorch_model.bin' is pickled"):
        model_check.inspect(directory)


def test_shards_are_all_found_and_a_lacking_one_or_tensor_is_named(tmp_path: Path) -> None:
    directory = hf_files.model(tmp_path / "m", shards=2)
    assert len(model_check.weight_files(directory)) == 2
    index = directory / "model.safetensors.index.json"
    _edit(index, weight_map=json.loads(index.read_text())["weight_map"] | {"t9": "model-00001-of-00002.safetensors"})
    with pytest.raises(TidemillError, match=r"lack 1 tensors of model.safetensors.index.json, 't9' first"):
        model_check.weight_files(directory)
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(TidemillError, match=r"has no 'model-00002-of-00002.safetensors'"):
        model_check.weight_files(directory)


def test_a_shard_outside_the_folder_is_refused(tmp_path: Path) -> None:
    directory = hf_files.model(tmp_path / "m", shards=2)
    _edit(directory / "model.safetensors.index.json", weight_map={"t0": "../secret.safetensors"})
    with pytest.raises(TidemillError, match="outside its folder"):
        model_check.weight_files(directory)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    directory = hf_files.model(tmp_path / "m")
    (directory / name).unlink()
    with pytest.raises(TidemillError, match=name):
        model_check.inspect(directory)


def test_a_template_of_no_known_family_or_none_is_refused(tmp_path: Path) -> None:
    directory = hf_files.model(tmp_path / "m")
    (directory / "chat_template.jinja").write_text("[INST] {{ messages[0].content }} [/INST]")
    with pytest.raises(TidemillError, match="supported are ChatML, Qwen and Llama 3"):
        model_check.inspect(directory)
    (directory / "chat_template.jinja").unlink()
    (directory / "tokenizer_config.json").unlink()
    with pytest.raises(TidemillError, match="no chat template"):
        model_check.inspect(directory)


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    directory = hf_files.model(tmp_path / "m")
    listed = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    _edit(directory / "tokenizer_config.json", chat_template=listed)
    assert model_check.chat_template(directory) == "d"
