"""Child processes that stand in for services: they speak the lifeline protocol and little else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidemill_harness.stack_file import alive
from tidemill_harness.stack_plan import ChildSpec

_GOOD = """
import os, signal, sys
from tidemill_common import lifeline
lifeline.hold(1.0)
print("hello from", os.getpid(), flush=True)
lifeline.announce({"pid": os.getpid(), "address": "127.0.0.1:1", "probe": "127.0.0.1:2", "argument": sys.argv[1]})
signal.pause()
"""
_STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _GOOD.replace(
    "signal.pause()", "while True: signal.pause()"
)
_BROKEN = "import sys\nprint('the model is missing')\nsys.exit(3)"
_SILENT = "import signal\nsignal.pause()"
SCRIPTS = {"good": _GOOD, "stubborn": _STUBBORN, "broken": _BROKEN, "silent": _SILENT}


def spec(name: str, kind: str = "good", stage: int = 0, argument: str = "") -> ChildSpec:
    return ChildSpec(name, name, (sys.executable, "-c", SCRIPTS[kind], argument), {}, stage)


def running(pids: list[int]) -> list[int]:
    """Those of ``pids`` that live; a zombie does not."""
    return [pid for pid in pids if alive(pid) and _state(pid) != "Z"]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
