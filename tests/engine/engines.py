"""Engines and requests for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_engine.engine import Engine
from tidemill_engine.generation import Generation, RemoteGeneration
from tidemill_engine.outputs import FirstToken, KvBlocks
from tidemill_engine.prefill_run import PrefillRun
from tidemill_engine.request import EngineRequest
from tidemill_engine.sampling import FinishReason, SamplingParams
from tidemill_engine.settings import EngineSettings

ROOT = b"r" * 16


@contextlib.asynccontextmanager
async def running(model: Path, **settings: Any) -> AsyncIterator[Engine]:
    """A started engine; on the way out nothing may be held."""
    engine = Engine.load(model, EngineSettings(**{"kv_bytes": 4 << 20, **settings}))
    engine.start(asyncio.get_running_loop())
    try:
        yield engine
        assert engine.stats().used_blocks == engine.stats().sequences == 0
    finally:
        await asyncio.to_thread(engine.stop)


def ask(tokens: Sequence[int], resumed: int = 0, **sampling: Any) -> EngineRequest:
    """A whole prompt; eight tokens are generated unless told otherwise."""
    return EngineRequest("test", ROOT, ROOT, 0, tuple(tokens), SamplingParams(**{"max_tokens": 8, **sampling}), resumed)


@dataclass
class Result:
    """All that a generation gave."""

    tokens: list[int]
    finish: FinishReason | None
    cached: int | None


async def collect(generation: Generation) -> Result:
    """Read a generation to its end and close it."""
    result = Result([], None, None)
    async with contextlib.aclosing(generation):
        async for step in generation:
            result.tokens += step.token_ids
            result.finish = step.finish
            result.cached = step.cached_tokens if result.cached is None else result.cached
    return result


async def transfer(run: PrefillRun, generation: RemoteGeneration) -> list[KvBlocks | FirstToken]:
    """Carry a prefill's output into a generation, and say what travelled."""
    parts: list[KvBlocks | FirstToken] = []
    async with contextlib.aclosing(run):
        async for part in run:
            parts.append(part)
            await hand(part, generation)
    await generation.complete()
    return parts


async def hand(part: KvBlocks | FirstToken, generation: RemoteGeneration) -> None:
    """Give one part to a generation."""
    if isinstance(part, FirstToken):
        await generation.first_token(part.token_id, part.cached_tokens)
    else:
        await generation.import_chunk(part.first_block, part.token_count, part.data, part.checksums)


async def disaggregated(prefill: Engine, decode: Engine, request: EngineRequest) -> Result:
    """The same turn with its prompt computed by another engine."""
    generation = decode.generate_remote(request)
    async with contextlib.aclosing(generation):
        admission = await generation.admitted()
        whole = ask(admission.prompt_ids).token_ids
        remote = EngineRequest("test", request.root_digest, request.root_digest, 0, whole, request.sampling)
        result, _ = await asyncio.gather(
            collect(generation), transfer(prefill.prefill(remote, admission.held_blocks), generation)
        )
    return result
