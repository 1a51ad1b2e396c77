"""The model that is served: what its directory and the tokenizer say of it."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.tokenizer.v1 import tokenizer_service_pb2
from tidemill_common import tokens
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.model_dir import ModelProfile
from tidemill_common.vocabulary import Vocabulary
from tidemill_gateway.syntax import CallSyntax, ThinkingSyntax


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model.

    Attributes:
        name: as in /v1/models.
        fingerprint: of its directory.
        family: template family.
        context_length: longest context in tokens.
        end_token_ids: ids that end a turn.
        calls: how it writes tool calls.
        thinking: how it writes thinking.
        appends: False where each turn is rendered whole.
        require_tool_first: clients should require a tool call on the first step. Such a model is also too small to end a long
            string or a series of calls, so its grammar does.
        vocabulary: bytes of its tokens.
    """

    name: str
    fingerprint: str
    family: str
    context_length: int
    end_token_ids: tuple[int, ...]
    calls: CallSyntax
    thinking: ThinkingSyntax
    appends: bool
    require_tool_first: bool
    vocabulary: Vocabulary


def read(
    profile: ModelProfile, vocabulary: Vocabulary, said: tokenizer_service_pb2.GetModelResponse, context_length: int
) -> ServedModel:
    """The model, of its directory and the tokenizer's answer; ``context_length`` of 0 takes what the tokenizer says.

    Raises TidemillError(MODEL_MISMATCH) when the two are not the same model.
    """
    if said.fingerprint != profile.fingerprint:
        raise TidemillError(
            Reason.MODEL_MISMATCH,
            f"the tokenizer serves {said.model!r} ({said.fingerprint}), the gateway {profile.fingerprint}",
        )
    syntax = said.tool_call_syntax
    return ServedModel(
        name=said.model or profile.name,
        fingerprint=profile.fingerprint,
        family=said.family,
        context_length=context_length or said.context_length or profile.context_length,
        end_token_ids=tuple(tokens.unpack(said.end_token_ids)) or profile.end_token_ids,
        calls=CallSyntax(syntax.begin, syntax.end, syntax.name_key or "name", syntax.arguments_key or "arguments"),
        thinking=ThinkingSyntax(said.thinking_begin, said.thinking_end),
        appends=said.delta_tokenization,
        require_tool_first=said.require_tool_first,
        vocabulary=vocabulary,
    )
