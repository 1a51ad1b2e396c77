from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.nodes import Maker
from tidemill_gateway.conversation import Conversations, Node, ResentTurns


@pytest.mark.requirement("gateway:bounded-memory")
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 5000)), max_size=60), st.integers(4096, 60_000))
def test_memory_stays_within_its_bound_and_never_loses_a_parent(steps: list[tuple[int, bool, int]], limit: int) -> None:
    maker, memory, nodes = Maker(), Conversations(limit), list[Node]()
    for pick, fresh, padding in steps:
        parent = None if fresh or not nodes else nodes[pick % len(nodes)]
        node = maker.node(parent, padding=padding)
        memory.add(node)
        nodes.append(node)
        held = [each for each in nodes if memory.get("t", each.response_id)]
        assert memory.bytes == sum(each.size for each in held)
        assert memory.bytes <= limit or all(each in node.lineage() for each in held)
        assert node in held
        assert all(each.parent in held for each in held if each.parent)
        assert len(memory) == len(held)


def test_the_conversation_used_longest_ago_shrinks_first_from_its_end() -> None:
    maker = Maker()
    memory = Conversations(10**9)
    old = [maker.node()]
    old.append(maker.node(old[0]))
    new = maker.node()
    for node in (*old, new):
        memory.add(node)
    memory.limit = memory.bytes
    memory.add(maker.node(new))
    assert memory.get("t", old[0].response_id) is old[0]
    assert memory.get("t", old[1].response_id) is None
    assert memory.get("t", new.response_id) is new


def test_reading_a_node_keeps_it_longer() -> None:
    maker, memory = Maker(), Conversations(10**9)
    first, second = maker.node(), maker.node()
    memory.add(first)
    memory.add(second)
    memory.get("t", first.response_id)
    memory.limit = memory.bytes
    memory.add(maker.node())
    assert memory.get("t", first.response_id) is first
    assert memory.get("t", second.response_id) is None


def test_a_tenant_finds_only_its_own() -> None:
    memory, node = Conversations(10**9), Maker().node(tenant="a")
    memory.add(node)
    assert memory.get("b", node.response_id) is None
    assert memory.delete("b", node.response_id) is False


def test_a_deleted_response_is_gone_and_those_after_it_go_on() -> None:
    maker, memory = Maker(), Conversations(10**9)
    first = maker.node()
    second = maker.node(first)
    memory.add(second)
    assert memory.delete("t", first.response_id)
    assert memory.get("t", first.response_id) is None
    assert memory.get("t", second.response_id) is second
    assert not memory.delete("t", first.response_id)
    assert memory.delete("t", second.response_id)
    assert (len(memory), memory.bytes, memory.conversations) == (0, 0, 0)


def test_a_node_costs_what_it_adds() -> None:
    maker = Maker()
    first = maker.node(prompt=10_000)
    assert first.size > 40_000
    assert maker.node(first, prompt=20).size < 4096


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(min_size=1, max_size=2), st.integers(0, 400)), max_size=60))
def test_resent_turns_stay_within_their_bound_and_keep_the_latest(turns: list[tuple[str, bytes, int]]) -> None:
    resent = ResentTurns(2000)
    latest: dict[tuple[str, bytes], bytes] = {}
    for tenant, digest, size in turns:
        latest[(tenant, digest)] = bytes(size)
        resent.add(tenant, digest, bytes(size))
        assert resent.bytes <= 2000
        assert resent.get(tenant, digest) == bytes(size)
    assert all(resent.get(*key) in (None, packed) for key, packed in latest.items())
