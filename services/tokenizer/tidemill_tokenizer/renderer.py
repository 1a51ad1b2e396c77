"""The core of the service: conversation items to token ids, for one model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.vocabulary import Vocabulary
from tidemill_tokenizer import encoding, probes
from tidemill_tokenizer.families import FAMILIES, Family
from tidemill_tokenizer.items import Item, Tool, readable_text
from tidemill_tokenizer.state import State
from tidemill_tokenizer.template import Template
from tidemill_tokenizer.whole import WholeRenderer
from tidemill_tokenizer.writer import Piece, Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rendered:
    """What ``Renderer.render`` gives: ids to append, the next call's state, and the text that a safety check reads."""

    ids: list[int]
    state: bytes
    text: str


class Renderer:
    """Renders and encodes for one model. A pure function of its arguments; safe to call from several threads.

    Attributes:
        family: the model's template family.
        encoder: text to ids.
        difference: where ``family`` and the model's own template differ; empty where they are equal.
        delta: whether new items can be rendered without their history; else whole conversations go through the template.
    """

    def __init__(
        self, profile: ModelProfile, encoder: encoding.Encoder, vocabulary: Vocabulary, template: Template | None
    ) -> None:
        """Raises TidemillError(CONFIG) where the profile's family is unknown or does not fit the tokenizer."""
        if profile.family not in FAMILIES:
            raise TidemillError(Reason.CONFIG, f"unknown template family {profile.family!r}; known are {sorted(FAMILIES)}")
        kind = FAMILIES[profile.family]
        self.encoder = encoder
        self.family: Family = kind(probes.learn(template, kind), encoder.special_ids)
        self.vocabulary = vocabulary
        whole = WholeRenderer(template, self.family, vocabulary, frozenset(profile.end_token_ids)) if template else None
        self.difference = self._compare(template, whole)
        self._whole = whole if self.difference else None
        self.delta = self._whole is None

    @classmethod
    def load(cls, directory: Path) -> Renderer:
        """The renderer of a model directory. Raises TidemillError(CONFIG) that names the file at fault."""
        profile = ModelProfile.load(directory)
        encoder, vocabulary = encoding.load(directory)
        renderer = cls(profile, encoder, vocabulary, Template.load(directory))
        if renderer.encoder.note:
            log.warning("encoding through tokenizers, which is slower: %s", renderer.encoder.note)
        if renderer.difference:
            log.warning("renderer and chat template differ (%s): delta tokenization is %s", renderer.difference, renderer.delta)
        return renderer

    def render(
        self, state: bytes, instructions: str, tools: Sequence[Tool], items: Sequence[Item], open_turn: bool
    ) -> Rendered:
        """Ids that follow ``state``, which is empty at a conversation's start.

        A start without instructions and items gives nothing and an empty state: the first item may yet be the system message.
        Raises TidemillError(INVALID_REQUEST, INVALID_TOOLS).
        """
        if self._whole is not None and state:
            raise TidemillError(Reason.INVALID_REQUEST, "this model is rendered whole; send an empty render state", "state")
        if not (state or instructions or items or open_turn):
            return Rendered([], b"", "")
        if self._whole is not None:
            pieces, after = self._whole.render(instructions, tools, items, open_turn), b""
        else:
            pieces, after = self._append(state, instructions, tools, items, open_turn)
        return Rendered(self._encode(pieces), after, readable_text(tuple(items)))

    def render_output(self, items: Sequence[Item]) -> list[int]:
        """Ids of one assistant turn as the model would sample them, end-of-turn token included.

        Raises TidemillError(INVALID_REQUEST) for items that the family cannot write into one turn.
        """
        writer = Writer(self.encoder.special_ids)
        self.family.turn(writer, items)
        return self._encode(writer.pieces)

    def _append(
        self, data: bytes, instructions: str, tools: Sequence[Tool], items: Sequence[Item], open_turn: bool
    ) -> tuple[list[Piece], bytes]:
        family = self.family
        state = State.load(data, family.name) if data else State()
        writer = Writer(self.encoder.special_ids, state.held)
        if not data:
            items = family.begin(writer, instructions, tools, items)
        for item in items:
            state = family.add(writer, state, item)
        if open_turn:
            state = family.open_turn(writer, state)
        held = State(state.phase, state.part, writer.pending)
        return writer.pieces, held.dump(family.name)

    def _encode(self, pieces: Sequence[Piece]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            ids.extend(self.encoder.encode(piece) if isinstance(piece, str) else piece)
        return ids

    def _compare(self, template: Template | None, whole: WholeRenderer | None) -> str:
        def ours(probe: probes.Probe) -> str:
            pieces, _ = self._append(b"", probe.instructions, probe.tools, probe.items, open_turn=True)
            return self._text(pieces)

        def theirs(probe: probes.Probe) -> str:
            return self._text(whole.render(probe.instructions, probe.tools, probe.items, open_turn=True)) if whole else ""

        return probes.difference(template, ours, theirs, self.family.options.thinking, self.family.calls_share_turn)

    def _text(self, pieces: Sequence[Piece]) -> str:
        return "".join(p if isinstance(p, str) else self.vocabulary.decode(p).decode("utf-8", "replace") for p in pieces)
