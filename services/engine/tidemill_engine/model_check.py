"""What a model directory in Hugging Face's format must have to be served, and the facts its profile is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import safetensors_file

MODEL_TYPES = ("llama", "qwen2", "qwen3")
CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_MOE_FIELDS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
_TURN_ENDS = {"chatml": "<|im_end|>", "qwen": "<|im_end|>", "llama3": "<|eot_id|>"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a model directory says of itself.

    Attributes:
        family: template family: chatml, llama3 or qwen.
        context_length: tokens.
        end_token_ids: ids that end a turn, sorted.
    """

    family: str
    context_length: int
    end_token_ids: tuple[int, ...]


def refused(why: str) -> TidemillError:
    """The error of everything that can't be served."""
    return TidemillError(Reason.MODEL_UNSUPPORTED, why)


def inspect(directory: Path) -> Facts:
    """Check everything but the weights' values. Raises TidemillError(MODEL_UNSUPPORTED) that names what is in the way."""
    config = check_config(read_json(directory / CONFIG_FILE))
    weight_files(directory)
    tokenizer = read_json(directory / TOKENIZER_FILE)
    if (kind := tokenizer.get("model", {}).get("type")) != "BPE":
        raise refused(f"the tokenizer is of type {kind!r}; BPE is supported")
    added = {str(token["content"]): int(token["id"]) for token in tokenizer.get("added_tokens", [])}
    family = template_family(str(config["model_type"]), chat_template(directory), added)
    generation = directory / "generation_config.json"
    configs = [config, read_json(generation)] if generation.is_file() else [config]
    ends = {added[_TURN_ENDS[family]], *(token for each in configs for token in _ids(each.get("eos_token_id")))}
    return Facts(family, int(config["max_position_embeddings"]), tuple(sorted(ends)))


def check_config(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` itself. Raises TidemillError(MODEL_UNSUPPORTED) for an architecture or quantisation that is not supported."""
    kind = config.get("model_type")
    if any(config.get(field) for field in _MOE_FIELDS) or "moe" in str(kind):
        raise refused(f"mixture of experts ({kind!r}) is not supported; dense {', '.join(MODEL_TYPES)} models are")
    if kind not in MODEL_TYPES:
        raise refused(f"the model type {kind!r} is not supported; supported are {', '.join(MODEL_TYPES)}")
    if quantisation := config.get("quantization_config"):
        method = quantisation.get("quant_method", "unnamed") if isinstance(quantisation, dict) else quantisation
        raise refused(f"the quantisation {method!r} is not supported in a directory; float32, float16 and bfloat16 weights are")
    if config.get("use_sliding_window"):
        raise refused("sliding-window attention is not supported; full attention is")
    if not isinstance(config.get("max_position_embeddings"), int):
        raise refused(f"{CONFIG_FILE} has no max_position_embeddings")
    return config


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model, each complete.

    Raises TidemillError(MODEL_UNSUPPORTED) when there are none, a shard lacks or a file is cut short.
    """
    index = directory / INDEX_FILE
    shards: Mapping[str, str] = read_json(index)["weight_map"] if index.is_file() else {}
    names = sorted(set(shards.values())) or [WEIGHTS_FILE]
    for name in names:
        if Path(name).name != name:
            raise refused(f"{INDEX_FILE} names {name!r}, outside its folder")
        if not (directory / name).is_file():
            raise refused(_missing_weights(directory, name))
    present = {tensor for name in names for tensor in safetensors_file.header(directory / name)}
    if missing := sorted(set(shards) - present):
        raise refused(f"the shards lack {len(missing)} tensors of {INDEX_FILE}, {missing[0]!r} first")
    return [directory / name for name in names]


def _missing_weights(directory: Path, name: str) -> str:
    pickled = sorted(path.name for pattern in _PICKLED for path in directory.glob(pattern))
    if pickled:
        return f"{pickled[0]!r} is pickled, which can run code when read; only safetensors weights are supported"
    return f"{str(directory)!r} has no {name!r}"


def chat_template(directory: Path) -> str:
    """The chat template, from its own file or tokenizer_config.json. Raises TidemillError(MODEL_UNSUPPORTED) without one."""
    path = directory / TEMPLATE_FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    config = directory / "tokenizer_config.json"
    template = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(template, list):
        template = next((each["template"] for each in template if each["name"] == "default"), None)
    if not isinstance(template, str):
        raise refused(f"{str(directory)!r} has no chat template; models tuned for chat are supported")
    return template


def template_family(model_type: str, template: str, added: Mapping[str, int]) -> str:
    """Family of a chat template. Raises TidemillError(MODEL_UNSUPPORTED) for one that no renderer knows."""
    if "<|start_header_id|>" in template and _TURN_ENDS["llama3"] in added:
        return "llama3"
    if "<|im_start|>" in template and _TURN_ENDS["chatml"] in added:
        return "qwen" if model_type.startswith("qwen") else "chatml"
    raise refused("the chat template is of no supported family; supported are ChatML, Qwen and Llama 3")


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``. Raises TidemillError(MODEL_UNSUPPORTED) when it is missing or none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise refused(f"{str(path.parent)!r} has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise refused(f"{str(path)!r} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise refused(f"{str(path)!r} is no JSON object")
    return content


def _ids(value: object) -> Iterable[int]:
    if isinstance(value, int):
        return [value]
    return [int(token) for token in value] if isinstance(value, list) else []
