from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_gateway import FakeGateway
from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness.endpoint import Endpoint, ModelProfile, api_key_for, model_profile


@pytest.mark.parametrize(
    ("typed", "url", "websocket"),
    [
        ("http://h:8080", "http://h:8080", "ws://h:8080/v1/responses"),
        ("https://h/v1/", "https://h", "wss://h/v1/responses"),
        ("wss://h/base/v1/responses", "https://h/base", "wss://h/base/v1/responses"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/responses"),
    ],
)
def test_an_address_is_taken_as_users_type_it(typed: str, url: str, websocket: str) -> None:
    endpoint = Endpoint.of(typed)
    assert (endpoint.url, endpoint.websocket_url) == (url, websocket)


@pytest.mark.requirement("harness:local-key")
def test_the_local_key_goes_to_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TIDEMILL_API_KEY", raising=False)
    paths.write_private(paths.first_key_file(), "tm-first\n")
    assert api_key_for(Endpoint.of("http://localhost:1"), "") == "tm-first"
    assert api_key_for(Endpoint.of("http://[::1]:1"), "") == "tm-first"
    assert api_key_for(Endpoint.of("https://elsewhere.example"), "") == ""
    monkeypatch.setenv("TIDEMILL_API_KEY", "tm-env")
    assert api_key_for(Endpoint.of("https://elsewhere.example"), "") == "tm-env"
    assert api_key_for(Endpoint.of("https://elsewhere.example"), "given") == "given"


async def test_the_profile_of_a_model_is_read() -> None:
    gateway = FakeGateway([], model={"id": "m", "tidemill": {"require_tool_first": True, "context_length": 4096}})
    async with gateway.running():
        assert await model_profile(Endpoint(gateway.url, "key")) == ModelProfile("m", True, 4096)


async def test_a_server_that_tells_no_profile_serves_too() -> None:
    gateway = FakeGateway([], model={"id": "m", "object": "model"})
    async with gateway.running():
        assert await model_profile(Endpoint(gateway.url, "key"), "m") == ModelProfile("m")


async def test_a_missing_key_is_a_catalogue_error() -> None:
    gateway = FakeGateway([])
    async with gateway.running():
        with pytest.raises(TidemillError) as caught:
            await model_profile(Endpoint(gateway.url))
    assert caught.value.reason is Reason.INVALID_API_KEY
