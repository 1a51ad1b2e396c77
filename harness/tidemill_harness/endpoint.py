"""Where a gateway is, which key opens it, and what it says of its models."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError
from tidemill_harness import frames

MODELS_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A gateway.

    Attributes:
        url: http(s) address without a path, or with the path that ``/v1`` follows.
        api_key: plain text; empty sends no header.
    """

    url: str
    api_key: str = ""

    @classmethod
    def of(cls, url: str, api_key: str = "") -> Endpoint:
        """An endpoint of what a user typed: http, https, ws or wss, with or without ``/v1``. Raises TidemillError(CONFIG)."""
        wrong = TidemillError(Reason.CONFIG, f"{url!r} is no address of a gateway, such as http://127.0.0.1:8080")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError as error:
            raise wrong from error
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        if scheme not in ("http", "https") or not parts.hostname:
            raise wrong
        path = parts.path.rstrip("/").removesuffix("/responses").removesuffix("/v1")
        return cls(urlunsplit((scheme, parts.netloc, path, "", "")), api_key)

    @property
    def websocket_url(self) -> str:
        """Address of the WebSocket."""
        return "ws" + self.url.removeprefix("http") + "/v1/responses"

    @property
    def loopback(self) -> bool:
        """Whether the gateway is on this machine: then no proxy is asked, and the local key may be sent."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What the harness wants to know of a model.

    Attributes:
        id: alias.
        require_tool_first: left to itself it calls no tool, so a task's first step requires one.
        context_length: tokens; 0 when unknown.
    """

    id: str
    require_tool_first: bool = False
    context_length: int = 0


async def model_profile(endpoint: Endpoint, wanted: str = "") -> ModelProfile:
    """The profile of ``wanted``, or of the first model that is served. Raises TidemillError."""
    entries = await _models(endpoint)
    found = next((entry for entry in entries if not wanted or entry.get("id") == wanted), None)
    if found is None:
        served = sorted(str(entry.get("id")) for entry in entries)
        raise TidemillError(Reason.MODEL_NOT_FOUND, f"model {wanted!r} is not served; {endpoint.url} serves {served}", "model")
    profile: dict[str, Any] = found.get("tidemill") or {}
    return ModelProfile(str(found["id"]), bool(profile.get("require_tool_first")), int(profile.get("context_length") or 0))


async def _models(endpoint: Endpoint) -> list[dict[str, Any]]:
    try:
        async with httpx.AsyncClient(timeout=MODELS_SECONDS, trust_env=not endpoint.loopback) as client:
            reply = await client.get(f"{endpoint.url}/v1/models", headers=endpoint.headers())
            body = reply.json()
    except httpx.HTTPError as error:
        raise unreachable(endpoint, error) from error
    except ValueError as error:
        raise TidemillError(Reason.UNAVAILABLE, f"{endpoint.url}/v1/models answers no JSON") from error
    if reply.status_code != httpx.codes.OK:
        raise refused(endpoint, reply.status_code, body)
    return [entry for entry in body.get("data") or () if isinstance(entry, dict)]


def unreachable(endpoint: Endpoint, error: Exception) -> TidemillError:
    """No gateway answers."""
    return TidemillError(Reason.UNAVAILABLE, f"no gateway answers at {endpoint.url} ({str(error) or type(error).__name__})")


def refused(endpoint: Endpoint, status: int, body: object) -> TidemillError:
    """A gateway answered with an HTTP error instead of what was asked."""
    error = body.get("error") if isinstance(body, dict) else None
    fields = error if isinstance(error, dict) else {"message": f"{endpoint.url} answered HTTP status {status}"}
    failed = frames.failure(fields, status)
    if isinstance(failed, frames.Busy):
        return failed.error
    return failed if isinstance(failed, TidemillError) else TidemillError(Reason.UNAVAILABLE, str(failed))


def api_key_for(endpoint: Endpoint, given: str, key_file: Path | None = None) -> str:
    """The key to send: the given one, TIDEMILL_API_KEY, else this machine's first key, which only loopback gets."""
    if given or (given := os.environ.get("TIDEMILL_API_KEY", "")):
        return given
    path = key_file or paths.first_key_file()
    if not endpoint.loopback or not path.is_file():
        return ""
    return path.read_text(encoding="utf-8").strip()
