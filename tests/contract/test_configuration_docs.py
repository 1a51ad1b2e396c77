from __future__ import annotations

import pytest

from tests.contract import configuration_docs
from tests.contract.configuration_docs import DOCUMENT, SERVICES, render, settings_class
from tidemill_common.config import ServiceSettings


@pytest.mark.requirement("config:documented")
def test_the_page_is_what_the_settings_classes_say() -> None:
    current = DOCUMENT.read_text(encoding="utf-8")
    assert current == render(), "run `python -m tests.contract.configuration_docs`"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_of_a_service_stands_on_the_page(service: str) -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    own = set(settings_class(service).model_fields) - set(ServiceSettings.model_fields)
    assert [name for name in own if f"`TIDEMILL_{service.upper()}_{name.upper()}`" not in page] == []


def test_a_default_in_a_home_folder_does_not_depend_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render()
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert configuration_docs.render() == before
