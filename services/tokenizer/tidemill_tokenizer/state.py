"""Render state: what of a conversation the next items depend on, as small versioned bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from tidemill_common.errors import Reason, TidemillError

VERSION = 1
MAX_BYTES = 1024


class Phase(StrEnum):
    """What stands open at the end of the rendered ids."""

    CLOSED = "closed"
    HEADER = "header"
    TEXT = "text"
    SAMPLED = "sampled"
    ENDED = "ended"
    OUTPUTS = "outputs"


class Part(IntEnum):
    """The last part of an assistant turn that is given as text; parts stand in this order, only calls repeat."""

    NONE = 0
    REASONING = 1
    MESSAGE = 2
    CALL = 3


@dataclass(frozen=True, slots=True)
class State:
    """Where a rendering stands.

    Attributes:
        phase: CLOSED between turns; HEADER after an assistant header with nothing after it; TEXT in an assistant turn given as
            text; SAMPLED after sampled ids without the end-of-turn token; ENDED after sampled ids with it; OUTPUTS in a message
            of tool outputs that may take more.
        part: last part of the open turn; NONE unless phase is TEXT.
        held: rendered text that is not encoded yet, because what follows may merge with it; at most 128 characters.
    """

    phase: Phase = Phase.CLOSED
    part: Part = Part.NONE
    held: str = ""

    def to(self, phase: Phase, part: Part = Part.NONE) -> State:
        """This state in another phase."""
        return replace(self, phase=phase, part=part)

    def dump(self, family: str) -> bytes:
        """Bytes for the caller to keep, under 1 KiB."""
        fields = {"v": VERSION, "family": family, "phase": self.phase, "part": self.part, "held": self.held}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes, family: str) -> State:
        """Read what ``dump`` wrote. Raises TidemillError(INVALID_REQUEST) for anything else, another family's included."""
        try:
            fields = json.loads(data) if len(data) <= MAX_BYTES else {}
            if (fields["v"], fields["family"]) != (VERSION, family):
                raise ValueError("of another version or family")
            return cls(Phase(fields["phase"]), Part(fields["part"]), str(fields["held"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TidemillError(
                Reason.INVALID_REQUEST, f"render state {data[:64]!r} is not one of this service: {error}", "state"
            ) from error
