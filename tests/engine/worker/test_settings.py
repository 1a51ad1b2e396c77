from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_decode.config import Settings
from tidemill_engine.settings import EngineSettings


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TIDEMILL_DECODE_MODEL_DIR", "/models/m")
    monkeypatch.setenv("TIDEMILL_DECODE_ROUTER", "a:1, b:2")
    return monkeypatch


def test_a_model_and_routers_are_enough() -> None:
    settings = Settings.read()
    assert settings.model_dir == Path("/models/m")
    assert settings.routers == ["a:1", "b:2"]
    assert settings.engine() == EngineSettings()


def test_the_engine_gets_its_part(least: pytest.MonkeyPatch) -> None:
    least.setenv("TIDEMILL_DECODE_DTYPE", "bfloat16")
    least.setenv("TIDEMILL_DECODE_CONTEXT_LENGTH", "99")
    assert Settings.read().engine() == EngineSettings(dtype="bfloat16", context_length=99)


@pytest.mark.parametrize(("name", "value"), [("ROUTER", " , "), ("DTYPE", "int8"), ("BLOCK_SIZE", "0"), ("SPEED", "11")])
def test_a_wrong_setting_is_named(least: pytest.MonkeyPatch, name: str, value: str) -> None:
    least.setenv(f"TIDEMILL_DECODE_{name}", value)
    with pytest.raises(TidemillError, match=f"TIDEMILL_DECODE_{name}") as caught:
        Settings.read()
    assert caught.value.reason is Reason.CONFIG


def test_a_missing_router_is_named(least: pytest.MonkeyPatch) -> None:
    least.delenv("TIDEMILL_DECODE_ROUTER")
    with pytest.raises(TidemillError, match="TIDEMILL_DECODE_ROUTER"):
        Settings.read()
