"""A model directory: Hugging Face's files plus ``tidemill.json``, the profile that `tidemill model add` writes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError

PROFILE_FILE = "tidemill.json"


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What the services need to know of a model.

    Attributes:
        name: name in /v1/models.
        family: template family: chatml, llama3 or qwen.
        fingerprint: hex digest of config, tokenizer and weights; services with different ones refuse each other.
        context_length: the model's own limit, tokens.
        end_token_ids: ids that end a turn.
        require_tool_first: ask clients to require a tool call on the first step of a task.
        source: where it came from, for people.
    """

    name: str
    family: str
    fingerprint: str
    context_length: int
    end_token_ids: tuple[int, ...]
    require_tool_first: bool = False
    source: str = ""

    def save(self, directory: Path) -> None:
        """Write the profile into ``directory``."""
        (directory / PROFILE_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> ModelProfile:
        """Read the profile of ``directory``. Raises TidemillError(CONFIG) when there is none or it is malformed."""
        path = directory / PROFILE_FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = {field.name for field in fields(cls)}
            if unknown := set(data) - known:
                raise ValueError(f"unknown keys {sorted(unknown)}")
            return cls(**{**data, "end_token_ids": tuple(data["end_token_ids"])})
        except FileNotFoundError as error:
            raise TidemillError(
                Reason.CONFIG, f"{str(directory)!r} is no model directory; `tidemill model add` makes one"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise TidemillError(Reason.CONFIG, f"{str(path)!r} is malformed: {error}") from error
