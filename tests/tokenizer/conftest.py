"""Models that this package's tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tokenizer.support import MODELS, write_model
from tidemill_tokenizer.renderer import Renderer

Load = Callable[[str], Renderer]


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of a small model by name, made at first use."""
    root = tmp_path_factory.mktemp("models")
    return lambda name: root / name if (root / name).exists() else write_model(root / name, name)


@pytest.fixture(scope="session")
def renderers(model_dirs: Callable[[str], Path]) -> Load:
    """Renderer of a small model by name, loaded once."""
    loaded: dict[str, Renderer] = {}

    def load(name: str) -> Renderer:
        if name not in loaded:
            loaded[name] = Renderer.load(model_dirs(name))
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def default_renderer(smollm2: Path) -> Renderer:
    """Renderer of the default model."""
    return Renderer.load(smollm2)


@pytest.fixture(params=[name for name in MODELS if name != "qwen3"])
def appending(request: pytest.FixtureRequest, renderers: Load) -> Renderer:
    """Each model that is rendered by appending."""
    return renderers(str(request.param))
