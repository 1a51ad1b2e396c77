"""docs/configuration.md, written from the settings classes: ``python -m tests.contract.configuration_docs``."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidemill_common import paths
from tidemill_common.config import ServiceSettings

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
SERVICES = ("gateway", "tokenizer", "safety", "router", "prefill", "decode")
ENVIRONMENT = (
    ("TIDEMILL_URL", "`tidemill run`, `chat`", "URL of the gateway; without it a local stack is started or joined."),
    ("TIDEMILL_API_KEY", "`tidemill run`, `chat`", "API key; without it the local stack's first key is read."),
    ("XDG_DATA_HOME", "everything", "`tidemill/models` in it holds models (default `~/.local/share`)."),
    ("XDG_CONFIG_HOME", "everything", "`tidemill` in it holds keys and secrets (default `~/.config`)."),
    ("XDG_STATE_HOME", "everything", "`tidemill` in it holds responses and logs (default `~/.local/state`)."),
)
HEAD = """# Configuration

Services read their settings from the environment at start. A name that a service does not know, or a value that does not fit,
ends it with the variable's name. `tidemill up` sets what the local stack needs and hands the other variables on.

This page is written by `python -m tests.contract.configuration_docs` from the settings classes; a test holds it current.
"""


def settings_class(service: str) -> type[ServiceSettings]:
    """The settings of a service: the class of its config module that has the service's prefix."""
    module = importlib.import_module(f"tidemill_{service}.config")
    prefix = f"TIDEMILL_{service.upper()}_"
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, ServiceSettings) and each.model_config.get("env_prefix") == prefix
    ]
    if len(found) != 1:
        raise LookupError(f"tidemill_{service}.config has {len(found)} settings classes with prefix {prefix}")
    return found[0]


def render() -> str:
    """The whole page."""
    common = ServiceSettings.model_fields
    parts = [HEAD, _table("Clients and folders", ("variable", "read by", "meaning"), [list(row) for row in ENVIRONMENT])]
    rows = [[f"`TIDEMILL_<SERVICE>_{name.upper()}`", _default(field), _text(field)] for name, field in common.items()]
    parts.append(_table("Every service", ("variable", "default", "meaning"), rows))
    for service in SERVICES:
        fields = settings_class(service).model_fields.items()
        rows = [
            [f"`TIDEMILL_{service.upper()}_{name.upper()}`", _default(field), _text(field)]
            for name, field in fields
            if name not in common
        ]
        parts.append(_table(service, ("variable", "default", "meaning"), rows))
    return "\n".join(parts)


def _table(title: str, head: tuple[str, str, str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in [list(head), ["---"] * 3, *rows]]
    return f"## {title}\n" + "\n".join(lines) + "\n"


def _text(field: FieldInfo) -> str:
    if not field.description:
        raise LookupError(f"a setting without description: {field!r}")
    return field.description.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _of_factory(getattr(field.default_factory, "__name__", ""))
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Path):
        return f"packaged `{value.name}`"
    return "none" if value in (None, "") else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _of_factory(name: str) -> str:
    if name == "gethostname":
        return "the host's name"
    location = getattr(paths, name, None)
    if location is None:
        raise LookupError(f"a default made by {name!r}, which this page can't name")
    with_homes = {variable: os.environ.pop(variable, None) for variable, _, _ in ENVIRONMENT if variable.startswith("XDG_")}
    try:
        return f"`~/{location().relative_to(Path.home())}`"
    finally:
        os.environ.update({variable: value for variable, value in with_homes.items() if value is not None})


if __name__ == "__main__":
    DOCUMENT.write_text(render(), encoding="utf-8")
