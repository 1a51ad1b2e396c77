"""API keys: made once in plain text, kept as SHA-256, compared in constant time.

A key reads ``tm-<id>-<secret>``; the secret has 256 random bits, so a plain hash suffices (no dictionary reaches it).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key.

    Attributes:
        id: short public id.
        hash: SHA-256 of the plain text, hex.
        tenant: whose cache and stored responses it reaches.
        created: seconds since the epoch.
        limits: limits by name; empty means none.
    """

    id: str
    hash: str
    tenant: str
    created: float
    limits: dict[str, int] = field(default_factory=dict)


def hash_key(plain: str) -> str:
    """SHA-256 of a key, hex."""
    return hashlib.sha256(plain.encode("utf-8", "surrogateescape")).hexdigest()


class KeyRing:
    """The keys that a gateway accepts."""

    def __init__(self, records: Iterable[KeyRecord] = ()) -> None:
        self.records = list(records)

    def authenticate(self, plain: str) -> KeyRecord | None:
        """The record of ``plain``, or None. Every record is compared, so the time tells nothing."""
        digest = hash_key(plain)
        found: KeyRecord | None = None
        for record in self.records:
            if hmac.compare_digest(record.hash, digest):
                found = record
        return found

    def add(self, tenant: str = "default", limits: dict[str, int] | None = None) -> tuple[str, KeyRecord]:
        """Make a key; returns its plain text, shown once, and its record."""
        key_id = secrets.token_hex(4)
        plain = f"tm-{key_id}-{secrets.token_urlsafe(32)}"
        record = KeyRecord(key_id, hash_key(plain), tenant, time.time(), limits or {})
        self.records.append(record)
        return plain, record

    def revoke(self, key_id: str) -> bool:
        """Forget a key; False when there is none of that id."""
        before = len(self.records)
        self.records = [record for record in self.records if record.id != key_id]
        return len(self.records) < before

    def save(self, path: Path) -> None:
        """Write the ring whole or not at all."""
        paths.write_private(path, json.dumps({"keys": [asdict(record) for record in self.records]}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Read a ring; a missing file is an empty ring. Raises TidemillError(CONFIG) for a malformed one."""
        if not path.exists():
            return cls()
        try:
            return cls(_record(entry) for entry in json.loads(path.read_text(encoding="utf-8"))["keys"])
        except (ValueError, KeyError, TypeError) as error:
            raise TidemillError(Reason.CONFIG, f"key file {str(path)!r} is malformed: {error}") from error


def _record(entry: dict[str, Any]) -> KeyRecord:
    record = KeyRecord(**{**entry, "hash": str(entry["hash"])})
    if not _HASH.fullmatch(record.hash):
        raise ValueError(f"the hash of key {record.id!r} is no SHA-256 in hex")
    return record
