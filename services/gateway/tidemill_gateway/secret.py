"""The secret that keys the digest chains: tenants can't share or probe each other's cache without it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from tidemill_common import paths
from tidemill_common.errors import Reason, TidemillError

SECRET_BYTES: Final = 32


def load_or_make(path: Path) -> bytes:
    """The secret of ``path``, made when there is none. Raises TidemillError(CONFIG) for a file that holds something else."""
    if not path.exists():
        paths.write_private(path, secrets.token_hex(SECRET_BYTES) + "\n")
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (ValueError, OSError) as error:
        raise TidemillError(Reason.CONFIG, f"digest secret {str(path)!r} is malformed: {error}") from error
    if len(secret) != SECRET_BYTES:
        raise TidemillError(Reason.CONFIG, f"digest secret {str(path)!r} must have {SECRET_BYTES} bytes, has {len(secret)}")
    return secret
