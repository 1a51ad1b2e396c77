"""A child that never outlives its parent.

The parent keeps the write end of a pipe and never writes; the kernel closes it when the parent dies, however it dies. A thread
of the child reads the other end, so even a hung event loop does not keep the child alive.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping

LIFELINE_FD = "TIDEMILL_LIFELINE_FD"
ANNOUNCE_FD = "TIDEMILL_ANNOUNCE_FD"


def hold(grace_seconds: float = 15.0) -> None:
    """Watch the lifeline if there is one: at its end, SIGTERM to this process, and after the grace an immediate exit."""
    descriptor = os.environ.pop(LIFELINE_FD, None)
    if descriptor is not None:
        threading.Thread(target=_watch, args=(int(descriptor), grace_seconds), name="lifeline", daemon=True).start()


def _watch(descriptor: int, grace_seconds: float) -> None:
    os.set_inheritable(descriptor, False)
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(1)


def announce(message: Mapping[str, object]) -> None:
    """Tell the parent, as one line of JSON, that this process is ready; without a parent, nothing."""
    descriptor = os.environ.pop(ANNOUNCE_FD, None)
    if descriptor is not None:
        with os.fdopen(int(descriptor), "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(message) + "\n")
