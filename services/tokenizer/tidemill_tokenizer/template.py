"""A model's own chat template: Jinja in a sandbox, with what `transformers` offers such templates."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.canonical import dump

# Templates that print a date get this one: a prompt that changes by the day would lose its cached prefix.
FIXED_DATE = datetime.datetime(2024, 7, 26, tzinfo=datetime.UTC)


class _Generation(Extension):
    """``{% generation %}`` marks assistant text for training; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Template:
    """A compiled chat template.

    Attributes:
        source: Jinja text.
    """

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        """Raises TidemillError(CONFIG) for text that is no Jinja template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], autoescape=False
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = FIXED_DATE.strftime
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._compiled = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TidemillError(Reason.CONFIG, f"the model's chat template does not compile: {error}") from error

    @classmethod
    def load(cls, directory: Path) -> Template | None:
        """The template of a model directory, None where it has none. Raises TidemillError(CONFIG) for malformed files."""
        try:
            path = directory / "tokenizer_config.json"
            config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            file = directory / "chat_template.jinja"
            source = file.read_text(encoding="utf-8") if file.exists() else _default_template(config.get("chat_template"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TidemillError(Reason.CONFIG, f"the chat template in {str(directory)!r} cannot be read: {error}") from error
        return cls(source, _token(config.get("bos_token")), _token(config.get("eos_token"))) if source else None

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], open_turn: bool) -> str:
        """Text of a conversation. Raises TidemillError(INVALID_REQUEST) where the template refuses it."""
        try:
            return self._compiled.render(
                messages=messages,
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=open_turn,
                tools_in_user_message=False,
                date_string=FIXED_DATE.strftime("%d %b %Y"),
                **self._tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise TidemillError(
                Reason.INVALID_REQUEST, f"the model's chat template refuses this conversation: {error}", "input"
            ) from error


def _default_template(entry: Any) -> str:
    """``chat_template`` is text, or a list of named templates."""
    if isinstance(entry, list):
        return str(next((each["template"] for each in entry if each["name"] == "default"), ""))
    return str(entry or "")


def _token(entry: Any) -> str:
    return str(entry["content"] if isinstance(entry, dict) else entry or "")


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=True, indent=indent) if ensure_ascii else dump(value, indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
