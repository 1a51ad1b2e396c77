from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.support.fake_services import BLOCK, END, FINGERPRINT, FakeServices
from tidemill_common import rpc
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import pack, unpack
from tidemill_gateway import clients
from tidemill_gateway.backends import Deadline, Direction, Job, Preamble, Prompt, Sampling, Worker, WorkerId
from tidemill_gateway.clients import DecodeClient, RouterClient, SafetyClient, TokenizerClient
from tidemill_gateway.items import Message, ModelOutput, Reasoning, RenderItem, ToolCall, ToolList, ToolOutput
from tidemill_gateway.tools import ToolSet

NOBODY = "127.0.0.1:1"
ROOT = b"r" * 16
JOB = Job("turn", ROOT, ROOT, 0, pack([72, 105]), Sampling(max_tokens=50, end_token_ids=pack([END])), None, BLOCK)


async def test_every_kind_of_item_is_rendered(fakes: FakeServices) -> None:
    tools = ToolSet.parse([{"type": "function", "name": "f", "parameters": {"type": "object"}}]).tools
    items: list[RenderItem] = [
        Message("user", "Hi"),
        ToolCall("f", "{}"),
        ToolOutput("out"),
        ToolList(tools),
        Reasoning("hm"),
        ModelOutput(pack([END])),
    ]
    async with rpc.connect(fakes.address) as channel:
        rendered = await TokenizerClient(channel).render(
            b"", Preamble("Be brief.", tools), items, open_turn=True, deadline=Deadline.after(10)
        )
    sent = fakes.tokenizer.requests[0]
    kinds = [item.WhichOneof("kind") for item in sent.items]
    assert kinds == ["message", "tool_call", "tool_output", "tool_list", "reasoning", "model_output"]
    assert (sent.instructions, [tool.name for tool in sent.tools]) == ("Be brief.", ["f"])
    assert rendered.text == "Hi\nout"
    assert rendered.hop.service == "tokenizer"


async def test_preamble_is_sent_at_the_start_only(fakes: FakeServices) -> None:
    async with rpc.connect(fakes.address) as channel:
        await TokenizerClient(channel).render(b"open", Preamble("Be brief."), [], open_turn=False, deadline=Deadline.after(10))
    assert fakes.tokenizer.requests[0].instructions == ""


async def test_a_service_that_is_not_there_is_named() -> None:
    async with rpc.connect(NOBODY) as channel:
        with pytest.raises(TidemillError, match="the tokenizer does not answer") as error:
            await TokenizerClient(channel).render(b"", Preamble(), [], open_turn=True, deadline=Deadline.after(0.2))
        assert error.value.reason is Reason.UNAVAILABLE
        with pytest.raises(TidemillError) as error:
            await SafetyClient(channel, 0.2).check("", "Hi", Direction.INPUT, deadline=Deadline.after(10))
        assert error.value.reason is Reason.SAFETY_UNAVAILABLE


async def test_no_time_left_is_no_call() -> None:
    async with rpc.connect(NOBODY) as channel:
        with pytest.raises(TidemillError) as error:
            await RouterClient(channel, FINGERPRINT).route(Prompt(ROOT, 0, [], 2), [], deadline=Deadline.after(-1))
    assert error.value.reason is Reason.DEADLINE_EXCEEDED


async def test_chunks_come_through_and_the_call_ends(fakes: FakeServices) -> None:
    worker, client = fakes.workers[0], DecodeClient(FINGERPRINT)
    to = Worker(WorkerId("decode-0", 1), worker.address, BLOCK)
    ids: list[int] = []
    async with aclosing(client.generate(to, JOB, deadline=Deadline.after(10))) as chunks:
        async for chunk in chunks:
            ids += unpack(chunk.packed)
    assert bytes(ids[:-1]).decode() == "Hello there."
    assert chunk.hops[0].service == "decode"
    assert worker.active == 0
    await client.close()


async def test_closing_the_chunks_cancels_the_call(fakes: FakeServices) -> None:
    worker, client = fakes.workers[0], DecodeClient(FINGERPRINT)
    worker.script.pause_after = 4
    chunks = client.generate(Worker(WorkerId("decode-0", 1), worker.address, BLOCK), JOB, deadline=Deadline.after(10))
    await anext(chunks)
    await chunks.aclose()
    await worker.answered.wait()
    assert worker.active == 0
    await client.close()


async def test_channels_are_bounded_and_a_lost_workers_is_closed(fakes: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_CHANNELS", 2)
    client = DecodeClient(FINGERPRINT)
    for number in range(4):
        added = await fakes.add_worker(f"more-{number}")
        to = Worker(WorkerId(f"more-{number}", 1), added.address, BLOCK)
        async with aclosing(client.generate(to, JOB, deadline=Deadline.after(10))) as chunks:
            async for _ in chunks:
                pass
    assert list(client._channels) == [worker.address for worker in fakes.workers[-2:]]
    with pytest.raises(TidemillError) as error:
        await anext(client.generate(replace(to, address=NOBODY), JOB, deadline=Deadline.after(10)))
    assert error.value.reason is Reason.UNAVAILABLE
    assert NOBODY not in client._channels
    await client.close()
