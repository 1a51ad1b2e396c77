"""Who may ask: API keys from a file that is read again when it changes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.keys import KeyRing

log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
RECHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        tenant: whose cache and stored responses it reaches.
        key_id: public id of the key; empty for an anonymous caller.
        limits: limits of the key by name; empty means none.
    """

    tenant: str
    key_id: str = ""
    limits: dict[str, int] = field(default_factory=dict)


class Authenticator:
    """Checks ``Authorization: Bearer KEY`` against the key file."""

    def __init__(self, keys_file: Path, allow_anonymous: bool) -> None:
        self.keys_file = keys_file
        self.allow_anonymous = allow_anonymous
        self._stamp = self._read_stamp()
        self._checked_at = time.monotonic()
        self._ring = KeyRing.load(keys_file)
        if not self._ring.records and not allow_anonymous:
            raise TidemillError(
                Reason.CONFIG,
                f"{str(keys_file)!r} holds no API key; `tidemill key add` makes one, "
                "or TIDEMILL_GATEWAY_ALLOW_ANONYMOUS=true serves everyone who reaches the port",
            )

    def caller(self, authorization: str | None) -> Caller:
        """The caller of an Authorization header's value. Raises TidemillError(INVALID_API_KEY)."""
        self._reload()
        scheme, _, plain = (authorization or "").partition(" ")
        record = self._ring.authenticate(plain.strip()) if scheme.lower() == "bearer" and plain.strip() else None
        if record is not None:
            return Caller(record.tenant, record.id, dict(record.limits))
        if self.allow_anonymous and authorization is None:
            return Caller(ANONYMOUS)
        what = "no API key was sent" if not authorization else "the API key is not known"
        raise TidemillError(Reason.INVALID_API_KEY, what)

    def check_still_known(self, caller: Caller) -> None:
        """Refuse a caller let in before whose key is revoked since. Raises TidemillError(INVALID_API_KEY)."""
        self._reload()
        if caller.key_id and not any(record.id == caller.key_id for record in self._ring.records):
            raise TidemillError(Reason.INVALID_API_KEY, "the API key was revoked")

    def _read_stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.keys_file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _reload(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < RECHECK_SECONDS:
            return
        self._checked_at = now
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        try:
            self._ring = KeyRing.load(self.keys_file)
        except (TidemillError, OSError) as error:
            log.error("keeping the API keys read before: %s", error)
            return
        self._stamp = stamp
        log.info("read %d API keys", len(self._ring.records))


def host_name(value: str) -> str:
    """Host name of a Host header's value or of an Origin, lower case, without port; empty when there is none."""
    try:
        return (urlsplit(value if "//" in value else f"//{value}").hostname or "").lower()
    except ValueError:
        return ""


def check_host(host: str | None, allowed: frozenset[str] | None) -> None:
    """Refuse a Host that is not ours, which a rebound DNS name would send. ``allowed`` of None accepts any."""
    if allowed is not None and host_name(host or "") not in allowed:
        raise TidemillError(
            Reason.INVALID_REQUEST, f"Host {host!r} is not served here; TIDEMILL_GATEWAY_ALLOWED_HOSTS lists what is", "host"
        )


def origin_allowed(origin: str | None, host: str | None) -> bool:
    """Whether a WebSocket may be opened from ``origin``: no browser, a local page, or a page of this very host."""
    if origin is None:
        return True
    name = host_name(origin) if "//" in origin else ""
    return bool(name) and (name in LOCAL_NAMES or name == host_name(host or ""))
