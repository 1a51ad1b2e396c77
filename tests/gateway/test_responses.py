from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.nodes import Maker, empty_chain
from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.conversation import Conversations, Node
from tidemill_gateway.responses import Responses
from tidemill_gateway.store import ResponseStore


async def fresh(path: Path, fingerprint: str = "f") -> Responses:
    store = ResponseStore(path, 30, 8)
    await store.open()
    return Responses(Conversations(10**9), store, fingerprint, empty_chain)


def read_items(node: Node) -> list[object]:
    """All items of a conversation, inputs as messages."""
    items: list[object] = []
    for each in node.lineage():
        given = json.loads(each.items)
        items += [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        items += json.loads(each.response)["output"]
    return items


@pytest.mark.requirement("gateway:store-restores")
@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0, 3, 40])), min_size=1, max_size=8))
async def test_a_restored_conversation_has_the_tokens_and_items_that_it_had(steps: list[tuple[bool, bool, int]]) -> None:
    maker, node = Maker(), None
    with TemporaryDirectory() as directory:
        path = Path(directory) / "store.sqlite"
        responses = await fresh(path)
        for number, (stored, whole, output) in enumerate(steps):
            last = number == len(steps) - 1
            node = maker.node(node, stored=stored or last, whole=whole, output=output)
            await responses.keep(node, created=1e12)
        await responses.store.close()
        assert node is not None
        again = await fresh(path)
        restored = await again.find("t", node.response_id, None)
        await again.store.close()
    assert restored.chain is not None
    assert node.chain is not None
    assert restored.chain.packed_after(0) == node.chain.packed_after(0)
    assert restored.chain.last_digest == node.chain.last_digest
    assert (restored.output, restored.state, restored.preamble, restored.text_tail, restored.model_turns) == (
        node.output, node.state, node.preamble, node.text_tail, node.model_turns,
    )  # fmt: skip
    assert read_items(restored) == read_items(node)


async def test_tokens_of_another_model_are_not_continued(tmp_path: Path) -> None:
    responses = await fresh(tmp_path / "store.sqlite")
    node = Maker().node()
    await responses.keep(node, created=1e12)
    await responses.store.close()
    again = await fresh(tmp_path / "store.sqlite", fingerprint="another")
    assert (await again.find("t", node.response_id, None)).chain is None
    await again.store.close()


async def test_an_unknown_response_says_which(tmp_path: Path) -> None:
    responses = await fresh(tmp_path / "store.sqlite")
    with pytest.raises(TidemillError) as error:
        await responses.find("t", "resp_x", Maker().node())
    assert (error.value.reason, error.value.param) == (Reason.PREVIOUS_RESPONSE_NOT_FOUND, "previous_response_id")
    assert "resp_x" in error.value.message
    await responses.store.close()


async def test_the_connections_last_response_is_found_without_memory_or_store(tmp_path: Path) -> None:
    responses = await fresh(tmp_path / "store.sqlite")
    node = Maker().node(stored=False)
    assert await responses.find("t", node.response_id, node) is node
    with pytest.raises(TidemillError):
        await responses.find("other", node.response_id, node)
    await responses.store.close()
