from __future__ import annotations

import pytest

from tidemill_common.errors import TidemillError
from tidemill_router.config import Settings
from tidemill_router.policy import Weights
from tidemill_router.routing import Limits


def test_the_defaults_are_those_of_the_core() -> None:
    settings = Settings.read()
    assert settings.limits() == Limits()
    assert settings.weights() == Weights()


def test_the_threshold_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_ROUTER_DISAGGREGATION_THRESHOLD", "0")
    assert Settings.read().limits().threshold == 0


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_ROUTER_SILENT_SECONDS", "0")
    with pytest.raises(TidemillError, match="TIDEMILL_ROUTER_SILENT_SECONDS"):
        Settings.read()
