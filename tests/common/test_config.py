from __future__ import annotations

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from tidemill_common.config import ServiceSettings
from tidemill_common.errors import Reason, TidemillError


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TIDEMILL_SAMPLE_", frozen=True, extra="forbid")

    rate: float = Field(1.0, gt=0, description="A number above 0.")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SAMPLE_RATE", "2.5")
    monkeypatch.setenv("TIDEMILL_SAMPLE_PORT", "8081")
    monkeypatch.setenv("TIDEMILL_OTHER_PORT", "nonsense of another service")
    settings = Settings.read()
    assert (settings.rate, settings.port, settings.host) == (2.5, 8081, "127.0.0.1")


@pytest.mark.requirement("config:unknown-refused")
def test_an_unknown_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SAMPLE_RATTE", "1")
    with pytest.raises(TidemillError, match="TIDEMILL_SAMPLE_RATTE") as caught:
        Settings.read()
    assert caught.value.reason is Reason.CONFIG
    assert "TIDEMILL_SAMPLE_RATE" in caught.value.message


@pytest.mark.requirement("config:unknown-refused")
@pytest.mark.parametrize(("name", "value"), [("RATE", "0"), ("RATE", "fast"), ("PORT", "70000"), ("LOG_LEVEL", "LOUD")])
def test_a_wrong_value_is_refused_by_name_and_value(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"TIDEMILL_SAMPLE_{name}", value)
    with pytest.raises(TidemillError, match=f"TIDEMILL_SAMPLE_{name}.*{value}") as caught:
        Settings.read()
    assert caught.value.reason is Reason.CONFIG


def test_settings_do_not_change() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.rate = 3.0  # type: ignore[misc]


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in ServiceSettings.model_fields.values())
