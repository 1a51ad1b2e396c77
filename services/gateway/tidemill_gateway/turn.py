"""One turn, from a rendered request to its last event."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from tidemill_common import cpu, telemetry
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import pack, unpack
from tidemill_gateway import metrics
from tidemill_gateway.backends import Deadline, Finish, Hop, Safety, Sampling
from tidemill_gateway.chain import Chain
from tidemill_gateway.conversation import Node, Reading, ResentTurns
from tidemill_gateway.events import Event, ResponseEvents, Usage
from tidemill_gateway.generation import Generator, Order
from tidemill_gateway.guard import Guard, SafetyMode, tail
from tidemill_gateway.history import Plan
from tidemill_gateway.items import turn_digests
from tidemill_gateway.outlet import ClientGoneError, Outlet, Send
from tidemill_gateway.output import OutputParser, ParseEvent
from tidemill_gateway.prewarm import Prewarmer
from tidemill_gateway.request import CreateRequest
from tidemill_gateway.responses import Responses
from tidemill_gateway.structured import task_group

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Means:
    """What every turn works with."""

    safety: Safety
    generator: Generator
    prewarmer: Prewarmer
    responses: Responses
    resent: ResentTurns
    safety_mode: SafetyMode
    safety_window: int
    keep_alive_seconds: float
    node: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn that is ready to run.

    Attributes:
        tenant: whose it is.
        response_id: id of its response.
        request: what was asked.
        received: monotonic time at which the request had been read.
        deadline: when it must have ended.
        previous: node that it follows; None for a first turn.
        plan: what was rendered.
        prompt: tokens of the prompt.
        state: render state after them.
        text: text of the input, as a safety check reads it.
        sampling: how tokens are chosen.
        parser: reads the output.
        hops: who served it so far.
    """

    tenant: str
    response_id: str
    request: CreateRequest
    received: float
    deadline: Deadline
    previous: Node | None
    plan: Plan
    prompt: Chain
    state: bytes
    text: str
    sampling: Sampling
    parser: OutputParser
    hops: tuple[Hop, ...]


class Turn:
    """Runs a prepared turn once.

    Attributes:
        events: what was sent, as a response object.
        error: why it failed; None while it has not.
    """

    def __init__(self, means: Means, prepared: Prepared) -> None:
        self.means = means
        self.asked = prepared
        self.created = time.time()
        self.events = ResponseEvents(prepared.response_id, prepared.request, self.created)
        self._hops = list(prepared.hops)
        self.error: TidemillError | None = None
        self._cached = 0
        self._output_text = ""

    async def run(self, send: Send, *, hops: bool = False) -> Node | None:
        """Send every event of the turn, the last of which says how it ended; its node when a turn may follow it.

        Raises ClientGoneError. A failure is an event, not an exception.
        """
        outlet = Outlet(send, self.events, self.means.keep_alive_seconds)
        outcome = "cancelled"
        try:
            async with _in_time(self.asked.deadline):
                await outlet.write(self.events.created())
                finish = await (self._generate(outlet) if self.asked.request.generate else self._compute_ahead())
            extra = [self.events.metadata(hops=[hop.body() for hop in self._all_hops()])] if hops else []
            last = self._last(finish)
            node = await self._keep()
            self._record()
            outcome = finish.value
            await outlet.write([*extra, last])
            return node
        except TidemillError as error:
            outcome = error.reason.value.lower()
            await self._fail(outlet, error)
            return None
        except ClientGoneError:
            raise
        except Exception as error:
            log.exception("%s failed", self.asked.response_id)
            outcome = "internal"
            await self._fail(outlet, TidemillError(Reason.INTERNAL, f"{type(error).__name__}: {error}"))
            return None
        finally:
            metrics.TURNS.labels(outcome).inc()
            self._observe_first_token(outlet)

    async def _generate(self, outlet: Outlet) -> Finish:
        """Generate under the guard's eyes; the reason why it ended."""
        asked, parser = self.asked, self.asked.parser
        finish = Finish.END
        run = self.means.generator.run(self._order(asked.sampling), asked.deadline)
        async with self._guarded() as (guard, tasks):
            keeper = tasks.create_task(outlet.keep_alive())
            async with aclosing(run.chunks()) as chunks:
                async for chunk in chunks:
                    self._cached += chunk.cached
                    finish = chunk.finish or finish
                    await self._release(outlet, await guard.admit(parser.push(unpack(chunk.packed))))
            await self._release(outlet, await guard.admit(parser.finish(complete=finish is not Finish.LENGTH)))
            await self._release(outlet, await guard.finish())
            keeper.cancel()
        self._hops += run.hops
        self._remember()
        return finish

    async def _compute_ahead(self) -> Finish:
        """Judge the prompt and leave its computation to the background: clients wait for this answer before they go on."""
        async with self._guarded() as (guard, _):
            await guard.finish()
        self.means.prewarmer.start(self.asked.response_id, self._order(Sampling(max_tokens=0)))
        return Finish.END

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[tuple[Guard, asyncio.TaskGroup]]:
        """A guard that has begun to judge the input, and the group in which it and the turn live and fail together."""
        async with task_group() as tasks:
            guard = Guard(
                self.means.safety,
                tasks,
                mode=self.means.safety_mode,
                window=self.means.safety_window,
                context=self.asked.plan.base.text_tail if self.asked.plan.base else "",
                deadline=self.asked.deadline,
            )
            guard.input(self.asked.text)
            yield guard, tasks
        self._hops += guard.hops
        self._output_text = guard.output

    async def _release(self, outlet: Outlet, parsed: list[ParseEvent]) -> None:
        if parsed:
            await outlet.write(self.events.feed(parsed))

    def _order(self, sampling: Sampling) -> Order:
        base = self.asked.plan.base
        known = base.chain.length if base and base.chain else 0
        return Order(self.asked.response_id, self.asked.prompt, known, sampling, self.session)

    @property
    def session(self) -> str:
        """What keeps the turns of a conversation on one worker: the client's key, else the first response."""
        own = self.asked.previous.session if self.asked.previous else self.asked.response_id
        return self.asked.request.prompt_cache_key or own

    def _last(self, finish: Finish) -> Event:
        """The event that ends a turn that did not fail."""
        metrics.TOKENS.labels("prompt").inc(self.usage.input)
        metrics.TOKENS.labels("cached").inc(self.usage.cached)
        metrics.TOKENS.labels("output").inc(self.usage.output)
        if finish is Finish.LENGTH:
            return self.events.incomplete("max_output_tokens", self.usage)
        return self.events.completed(self.usage, time.time())

    @property
    def usage(self) -> Usage:
        """Tokens of the turn so far."""
        parser = self.asked.parser
        return Usage(self.asked.prompt.length, self._cached, len(parser.token_ids), parser.reasoning_tokens)

    async def _keep(self) -> Node:
        """Make the node that a next turn can follow."""
        asked, output = self.asked, pack(self.asked.parser.token_ids)
        before = asked.plan.base.text_tail if asked.plan.base else ""
        node = Node(
            response_id=asked.response_id,
            tenant=asked.tenant,
            parent=asked.previous,
            chain=asked.prompt.extend(output) if output else asked.prompt,
            output=output,
            state=asked.state,
            preamble=asked.plan.preamble_digest,
            text_tail=tail(before + asked.text + self._output_text),
            items=dump(asked.request.input),
            response=dump(self.events.response),
            model_turns=asked.plan.model_turns + bool(output),
            session=self.session,
            stored=asked.request.store,
            reading=Reading(asked.plan.reading.tools, asked.plan.reading.calls.called(self.events.call_ids)),
        )
        await self.means.responses.keep(node, self.created)
        return node

    def _record(self) -> None:
        """One log line a turn: what was asked, what was cached, what came out."""
        asked, usage = self.asked, self.usage
        fields = {
            "response_id": asked.response_id,
            "previous_response_id": asked.previous.response_id if asked.previous else None,
            "model": asked.request.model,
            "generate": asked.request.generate,
            "input_tokens": usage.input,
            "cached_tokens": usage.cached,
            "output_tokens": usage.output,
        }
        log.info("turn", extra={"fields": fields})

    def _remember(self) -> None:
        """Keep the sampled ids for a client that sends this turn back as text."""
        packed = pack(self.asked.parser.token_ids)
        for digest in turn_digests(self.events.output):
            self.means.resent.add(self.asked.tenant, digest, packed)

    async def _fail(self, outlet: Outlet, error: TidemillError) -> None:
        self.error = error
        telemetry.ERRORS.labels("gateway", error.reason).inc()
        log.warning("%s failed: %s %s", self.asked.response_id, error.reason, error)
        await outlet.write([self.events.failed(error, self.usage)])

    def _all_hops(self) -> list[Hop]:
        milliseconds = (time.monotonic() - self.asked.received) * 1000
        return [Hop("gateway", self.means.node, cpu.node_type(), milliseconds, os.getpid()), *self._hops]

    def _observe_first_token(self, outlet: Outlet) -> None:
        if outlet.first_token_at is not None:
            seconds = outlet.first_token_at - self.asked.received
            telemetry.TTFT_SECONDS.labels("gateway", cpu.node_type()).observe(seconds)


@asynccontextmanager
async def _in_time(deadline: Deadline) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(deadline.left()):
            yield
    except TimeoutError as error:
        raise TidemillError(Reason.DEADLINE_EXCEEDED, "the turn's time is over") from error


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
