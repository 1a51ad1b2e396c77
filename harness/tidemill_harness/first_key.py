"""The first API key: made by the first start of a stack, its plain text in a file that only its owner reads."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from tidemill_common import paths
from tidemill_common.keys import KeyRing


def ensure() -> str:
    """Plain text of the first key; made, with its hash in the key file, when there is none or it was revoked.

    Raises TidemillError(CONFIG) for a malformed key file.
    """
    path = paths.first_key_file()
    with locked_ring() as ring:
        plain = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if ring.authenticate(plain) is None:
            plain, _ = ring.add()
            paths.write_private(path, plain + "\n")
            ring.save(paths.keys_file())
        return plain


@contextlib.contextmanager
def locked_ring() -> Iterator[KeyRing]:
    """The keys, while no other process changes them; the caller saves."""
    paths.config_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(paths.config_dir(), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield KeyRing.load(paths.keys_file())
    finally:
        os.close(descriptor)
