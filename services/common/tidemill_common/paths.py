"""Where Tidemill keeps things, by the XDG Base Directory Specification.

models    $XDG_DATA_HOME/tidemill/models       (~/.local/share)
keys      $XDG_CONFIG_HOME/tidemill            (~/.config)       keys.json, first-key (0600), digest-secret (0600)
store     $XDG_STATE_HOME/tidemill             (~/.local/state)  responses.sqlite, logs/, sessions/, stack.json
"""

from __future__ import annotations

import os
from pathlib import Path


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return (Path(value) if os.path.isabs(value) else Path.home() / default) / "tidemill"


def data_dir() -> Path:
    """Folder of models."""
    return _base("XDG_DATA_HOME", ".local/share")


def config_dir() -> Path:
    """Folder of keys and secrets."""
    return _base("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Folder of the response store, logs and the running stack's description."""
    return _base("XDG_STATE_HOME", ".local/state")


def models_dir() -> Path:
    """One folder per model."""
    return data_dir() / "models"


def keys_file() -> Path:
    """Hashed API keys."""
    return config_dir() / "keys.json"


def first_key_file() -> Path:
    """Plain text of the first key, mode 0600, read by `up` and the harness."""
    return config_dir() / "first-key"


def digest_secret_file() -> Path:
    """Secret of the digest chains, mode 0600, read by the gateway alone."""
    return config_dir() / "digest-secret"


def store_file() -> Path:
    """SQLite file of stored responses."""
    return state_dir() / "responses.sqlite"


def logs_dir() -> Path:
    """One log file per service."""
    return state_dir() / "logs"


def stack_file() -> Path:
    """Description of the local stack while it runs."""
    return state_dir() / "stack.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads (0600), whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
