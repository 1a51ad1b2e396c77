"""Stand-in models in Hugging Face's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.engine import gguf_files
from tidemill_engine import gguf_tokenizer

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
}


def model(directory: Path, shards: int = 1, **config: Any) -> Path:
    """Write a model directory whose weights lie in ``shards`` files. A config field given as None is left out."""
    directory.mkdir(parents=True)
    fields = {key: value for key, value in (CONFIG | config).items() if value is not None}
    (directory / "config.json").write_text(json.dumps(fields))
    (directory / "tokenizer.json").write_text(json.dumps(gguf_tokenizer.tokenizer_json(gguf_files.metadata())))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": gguf_files.TEMPLATE}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    tensors = {f"t{n}": np.full((4,), n, np.float32) for n in range(4)}
    if shards == 1:
        save_file(tensors, directory / "model.safetensors")
        return directory
    names = {name: f"model-{n % shards + 1:05}-of-{shards:05}.safetensors" for n, name in enumerate(tensors)}
    for file in set(names.values()):
        save_file({name: tensor for name, tensor in tensors.items() if names[name] == file}, directory / file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return directory
