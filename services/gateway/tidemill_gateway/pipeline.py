"""From a request as a client sent it to a turn that is ready to run."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import TOKEN_BYTES, pack
from tidemill_gateway.backends import Deadline, Sampling, Tokenizer
from tidemill_gateway.chain import Chain
from tidemill_gateway.conversation import Node
from tidemill_gateway.grammar import check_grammar, turn_grammar
from tidemill_gateway.history import Historian, Plan
from tidemill_gateway.items import parse_output
from tidemill_gateway.output import OutputParser
from tidemill_gateway.request import ChoiceMode, CreateRequest, FormatKind, Json, parse_create
from tidemill_gateway.responses import Responses
from tidemill_gateway.scripts import Scripts
from tidemill_gateway.served import ServedModel
from tidemill_gateway.tools import FlatTool, check_beside
from tidemill_gateway.turn import Means, Prepared, Turn

SMALL_MODEL_STRING: Final = 400
LEAST_TOP_P: Final = 1e-6  # less is lost on the way as a 32-bit float, where 0 means all tokens
INLINE_TOOL_VALUES: Final = 256


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for requests that do not say, and the bound of a turn."""

    max_output_tokens: int
    temperature: float
    turn_seconds: float
    allow_forced_output: bool


class Pipeline:
    """Prepares turns. ``empty`` gives the empty chain of a tenant."""

    def __init__(
        self,
        served: ServedModel,
        tokenizer: Tokenizer,
        historian: Historian,
        responses: Responses,
        scripts: Scripts,
        means: Means,
        defaults: Defaults,
        empty: Callable[[str], Chain],
    ) -> None:
        self.served = served
        self.tokenizer = tokenizer
        self.historian = historian
        self.responses = responses
        self.scripts = scripts
        self.means = means
        self.defaults = defaults
        self.empty = empty

    async def prepare(self, raw: Json, tenant: str, *, received: float, last: Node | None = None) -> Turn:
        """Check a request, find what it follows, render it. ``last`` is the connection's last response.

        Raises TidemillError; nothing was sent then.
        """
        deadline = Deadline(received + self.defaults.turn_seconds)
        request = parse_create(raw)
        self._check_model(request)
        previous = await self._previous(request, tenant, last, deadline)
        await check_beside(_tool_lists(request), INLINE_TOOL_VALUES)
        plan = self.historian.plan(request, tenant, previous)
        rendered = await self.tokenizer.render(
            self._state(plan), plan.preamble, plan.items, open_turn=request.generate, deadline=deadline
        )
        prompt = self._extend(plan, tenant, rendered.packed)
        self._check_length(prompt.length)
        tools, forced = await self._tools_and_forced(request, plan, deadline)
        prepared = Prepared(
            tenant=tenant,
            response_id=f"resp_{secrets.token_hex(24)}",
            request=request,
            received=received,
            deadline=deadline,
            previous=previous,
            plan=plan,
            prompt=prompt,
            state=rendered.state,
            text=rendered.text,
            sampling=self._sampling(request, tools, forced, prompt.length),
            parser=self._parser(tools),
            hops=(rendered.hop,),
        )
        return Turn(self.means, prepared)

    @property
    def models(self) -> tuple[str, ...]:
        """Names that a request may ask for."""
        return (self.served.name, *self.scripts.aliases)

    def _check_model(self, request: CreateRequest) -> None:
        if request.model not in self.models:
            raise TidemillError(
                Reason.MODEL_NOT_FOUND, f"model {request.model!r} is not served; served are {', '.join(self.models)}", "model"
            )
        if request.forced_output is not None and not self.defaults.allow_forced_output:
            raise TidemillError(Reason.FORCED_OUTPUT_DISABLED, "forced output is switched off here", "tidemill_forced_output")

    async def _previous(self, request: CreateRequest, tenant: str, last: Node | None, deadline: Deadline) -> Node | None:
        if request.previous_response_id is None:
            return None
        node = await self.responses.find(tenant, request.previous_response_id, last)
        await self.means.prewarmer.settle(node.response_id, deadline)
        return node

    @staticmethod
    def _state(plan: Plan) -> bytes:
        return plan.base.state if plan.base else b""

    def _extend(self, plan: Plan, tenant: str, packed: bytes) -> Chain:
        """The prompt's tokens. Of a response that goes on, the sampled ids are there already and rendered again first."""
        if plan.base is None or plan.base.chain is None:
            return self.empty(tenant).extend(packed)
        output = plan.base.output
        if not packed.startswith(output):
            raise TidemillError(Reason.INTERNAL, "the tokenizer changed sampled ids")
        return plan.base.chain.extend(packed[len(output) :])

    def _check_length(self, tokens: int) -> None:
        limit = self.served.context_length
        if tokens == 0:
            raise TidemillError(Reason.INVALID_REQUEST, "input is empty: there is nothing to answer", "input")
        if tokens >= limit:
            raise TidemillError(
                Reason.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt has {tokens} tokens, the context of {self.served.name!r} has {limit}, an answer included",
                "input",
            )

    async def _tools_and_forced(
        self, request: CreateRequest, plan: Plan, deadline: Deadline
    ) -> tuple[tuple[FlatTool, ...], bytes]:
        """Tools that the output may call, and the ids that replace the sampled ones."""
        param, items = "tidemill_forced_output", request.forced_output
        if items is None and request.generate:
            param, items = "model", self.scripts.turn(request.model, plan.model_turns)
        if items is None:
            return plan.reading.tools.select(request.tool_choice), b""
        read = parse_output(items, plan.reading.tools, model=self.served.name, param=param)
        return plan.reading.tools.tools, await self.tokenizer.render_output(read, deadline=deadline)

    def _sampling(self, request: CreateRequest, tools: tuple[FlatTool, ...], forced: bytes, prompt: int) -> Sampling:
        room = self.served.context_length - prompt
        temperature = self.defaults.temperature if request.temperature is None else request.temperature
        return Sampling(
            max_tokens=min(request.max_output_tokens or self.defaults.max_output_tokens, room),
            temperature=temperature,
            top_p=1.0 if request.top_p is None else max(request.top_p, LEAST_TOP_P),
            seed=secrets.randbits(64) if request.seed is None else request.seed,
            end_token_ids=pack(self.served.end_token_ids),
            grammar="" if forced else self._grammar(request, tools),
            forced=forced[: room * TOKEN_BYTES],
        )

    def _grammar(self, request: CreateRequest, tools: tuple[FlatTool, ...]) -> str:
        if not request.generate:
            return ""
        make = _known_grammar if request.text_format.kind is FormatKind.TEXT else _grammar
        grammar, problem = make(
            tools,
            request.tool_choice.mode if tools else ChoiceMode.NONE,
            parallel=request.parallel_tool_calls and not self.served.require_tool_first,
            syntax=self.served.calls,
            thinking=self.served.thinking,
            text_format=request.text_format,
            string_limit=SMALL_MODEL_STRING if self.served.require_tool_first else None,
        )
        if problem:
            raise TidemillError(Reason.INVALID_TOOLS, f"no grammar can be made of these tools: {problem}", "tools")
        return grammar

    def _parser(self, tools: tuple[FlatTool, ...]) -> OutputParser:
        return OutputParser(
            self.served.vocabulary,
            self.served.end_token_ids,
            syntax=self.served.calls,
            thinking=self.served.thinking,
            tools=tools,
        )


def _tool_lists(request: CreateRequest) -> list[Any]:
    """Every list of tools in a request: its own, and those of its items."""
    items = () if isinstance(request.input, str) else request.input
    return [list(request.tools), *(item["tools"] for item in items if isinstance(item.get("tools"), list))]


def _grammar(tools: tuple[FlatTool, ...], mode: ChoiceMode, **about: Any) -> tuple[str, str]:
    """A turn's grammar, and what is wrong with it."""
    grammar = turn_grammar(tools, mode, **about)
    return grammar, check_grammar(grammar) if grammar else ""


# The tools of a conversation stay, and a grammar of many costs milliseconds; a text format's schema can't be a key.
_known_grammar = lru_cache(maxsize=64)(_grammar)
