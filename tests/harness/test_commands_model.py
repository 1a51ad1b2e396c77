from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.engine import gguf_files
from tidemill_common import paths
from tidemill_common.errors import TidemillError
from tidemill_harness.commands_model import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, TidemillError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.requirement("model:commands")
def test_a_model_is_added_listed_and_removed(tmp_path: Path) -> None:
    source = gguf_files.tiny(tmp_path / "tiny.gguf")
    assert "No model yet" in _run("list")
    assert f"Added mine ({paths.models_dir() / 'mine'}" in _run("add", str(source), "--name", "mine")
    assert "Already here: mine" in _run("add", str(source), "--name", "mine")
    listed = _run("list")
    for word in ("mine", "chatml", "64"):
        assert word in listed
    assert _run("rm", "mine") == "Removed mine\n"
    assert "No model yet" in _run("list")
    assert source.exists()


def test_what_is_not_supported_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(TidemillError) as caught:
        _run("add", str(gguf_files.tiny(tmp_path / "m.gguf", general__architecture="mamba")))
    assert "'mamba' is not supported" in caught.value.sentence()
    assert "Served are dense Llama, Qwen2 and Qwen3 chat models" in caught.value.sentence()
