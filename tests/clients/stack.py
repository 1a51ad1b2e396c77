"""A stack of its own for the clients: real processes, keys and store under build/clients, the installed models."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_common import paths

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "clients"
SCRIPTED_MODEL = "scripted"
SCRIPT: list[list[dict[str, Any]]] = [
    [
        {
            "type": "function_call",
            "name": "exec_command",
            "arguments": json.dumps({"cmd": "echo tide-$((6*7)) > found.txt; cat found.txt"}),
        }
    ],
    [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The file holds tide-42."}]}],
]


@dataclass(frozen=True)
class Stack:
    """A running stack as clients see it."""

    url: str
    key: str
    turn_log: Path

    def turns(self, model: str | None = None) -> list[dict[str, Any]]:
        """Turns that the gateway recorded, oldest first."""
        lines = self.turn_log.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if '"turn"' in line]
        return [r for r in records if r.get("message") == "turn" and model in (None, r.get("model"))]


@contextlib.contextmanager
def running_stack() -> Iterator[Stack]:
    """`tidemill up` with the scripted alias, ended with SIGINT as a person would end it."""
    HOME.mkdir(parents=True, exist_ok=True)
    scripts = HOME / "scripts.json"
    scripts.write_text(json.dumps({SCRIPTED_MODEL: SCRIPT}), encoding="utf-8")
    environment = os.environ | {
        "XDG_DATA_HOME": str(paths.data_dir().parent),
        "XDG_CONFIG_HOME": str(HOME / "config"),
        "XDG_STATE_HOME": str(HOME / "state"),
    }
    command = [
        sys.executable,
        "-m",
        "tidemill_harness",
        "up",
        "--port",
        "0",
        "--allow-forced-output",
        "--scripts",
        str(scripts),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _wait_for(process, HOME)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def _wait_for(process: subprocess.Popen[str], home: Path) -> Stack:
    if process.stdout is None:
        raise RuntimeError("the stack has no output pipe")
    deadline = time.monotonic() + 120
    for line in process.stdout:
        print(line, end="")
        if line.startswith("ready") or time.monotonic() > deadline:
            break
    description = json.loads((home / "state" / "tidemill" / "stack.json").read_text(encoding="utf-8"))
    log = next(Path(service["log"]) for service in description["services"] if service["service"] == "gateway")
    return Stack(description["url"], Path(description["key_file"]).read_text(encoding="utf-8").strip(), log)
