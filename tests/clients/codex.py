"""The Codex CLI from npm, unmodified, pointed at the gateway by its configuration file alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.stack import HOME, Stack

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / ".bin" / "codex"
CONFIG = """\
model = "{model}"
model_provider = "tidemill"
[model_providers.tidemill]
name = "Tidemill"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "TIDEMILL_API_KEY"
supports_websockets = {websockets}
{catalogue}
[analytics]
enabled = false
[features]
plugins = false
apps = false
"""


@dataclass(frozen=True)
class Run:
    """What one `codex exec` did: its JSON events, exit status and workspace."""

    events: list[dict[str, Any]]
    status: int
    stderr: str
    workspace: Path

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Completed items of one type, in order."""
        done = (event["item"] for event in self.events if event.get("type") == "item.completed")
        return [item for item in done if item.get("type") == kind]

    @property
    def usage(self) -> dict[str, int]:
        """Token usage that Codex summed over the turn; empty when it did not complete."""
        completed = [event["usage"] for event in self.events if event.get("type") == "turn.completed"]
        return completed[-1] if completed else {}

    @property
    def errors(self) -> str:
        """Everything that the user was told went wrong."""
        kinds = ("error", "turn.failed")
        return "\n".join(json.dumps(event) for event in self.events if event.get("type") in kinds)


def install() -> str:
    """Install Codex by its package lock if it is not there; returns its version."""
    if not PROGRAM.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("make clients needs npm: run `make system-deps` as root, or install nodejs and npm")
        subprocess.run([npm, "ci", "--silent", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    return subprocess.run([str(PROGRAM), "--version"], capture_output=True, text=True, check=True).stdout.strip()


def run(stack: Stack, name: str, prompt: str, *, model: str, websockets: bool = True, catalogue: bool = True) -> Run:
    """One `codex exec` in a home and workspace of its own.

    Its log (stderr) holds each frame as it was received. The home lies outside the system's temporary folder, where Codex
    refuses to make its sandbox links.
    """
    home, workspace = HOME / name / "home", HOME / name / "workspace"
    shutil.rmtree(HOME / name, ignore_errors=True)
    home.mkdir(parents=True)
    workspace.mkdir(parents=True)
    line = f'model_catalog_url = "{stack.url}/v1/models"' if catalogue else ""
    text = CONFIG.format(model=model, url=stack.url, websockets=str(websockets).lower(), catalogue=line)
    (home / "config.toml").write_text(text, encoding="utf-8")
    environment = os.environ | {"CODEX_HOME": str(home), "TIDEMILL_API_KEY": stack.key, "RUST_LOG": "tungstenite=trace"}
    command = [str(PROGRAM), "exec", "--skip-git-repo-check", "--json", "-s", "workspace-write", "-C", str(workspace), prompt]
    result = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    events = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    (HOME / name / "events.jsonl").write_text(result.stdout + result.stderr, encoding="utf-8")
    return Run(events, result.returncode, result.stderr, workspace)
