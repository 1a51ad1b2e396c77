"""A child that never outlives its parent.

The parent keeps the write end of a pipe and never writes; the kernel closes it when the parent dies, however it dies. A thread
of the child reads the other end, so even a hung event loop does not keep the child alive. A file that describes the parent goes
with it: the first child that notices removes it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

LIFELINE_FD = "TIDEMILL_LIFELINE_FD"
ANNOUNCE_FD = "TIDEMILL_ANNOUNCE_FD"
LIFELINE_FILE = "TIDEMILL_LIFELINE_FILE"
"""``<pid>:<path>``: a JSON file to remove when the parent ``pid`` is gone, if its "pid" is still that of the parent."""

_TIMER_SECONDS = 1.0


def hold(grace_seconds: float = 15.0) -> None:
    """Watch the lifeline if there is one: at its end, SIGTERM to this process, and after the grace an immediate exit."""
    descriptor, file = os.environ.pop(LIFELINE_FD, None), os.environ.pop(LIFELINE_FILE, "")
    if descriptor is not None:
        arguments = (int(descriptor), file, grace_seconds)
        threading.Thread(target=_watch, args=arguments, name="lifeline", daemon=True).start()


def _watch(descriptor: int, file: str, grace_seconds: float) -> None:
    os.set_inheritable(descriptor, False)
    while os.read(descriptor, 1):
        pass
    if file:
        owner, _, path = file.partition(":")
        remove_owned(Path(path), int(owner))
    # The timer is the kernel's: it also ends an interpreter that is being torn down, where no thread runs any more.
    signal.setitimer(signal.ITIMER_REAL, grace_seconds + _TIMER_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(1)


def remove_owned(path: Path, owner: int) -> None:
    """Remove ``path`` if its "pid" is ``owner``: a successor may have written its own already."""
    try:
        if json.loads(path.read_text(encoding="utf-8"))["pid"] == owner:
            path.unlink(missing_ok=True)
    except (OSError, ValueError, KeyError, TypeError):
        return


def announce(message: Mapping[str, object]) -> None:
    """Tell the parent, as one line of JSON, that this process is ready; without a parent, nothing."""
    descriptor = os.environ.pop(ANNOUNCE_FD, None)
    if descriptor is not None:
        with os.fdopen(int(descriptor), "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(message) + "\n")
