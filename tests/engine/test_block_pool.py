from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemill_common.digests import chain
from tidemill_common.tokens import pack
from tidemill_engine.block_pool import BlockPool
from tidemill_engine.events import BlocksCleared, BlocksRemoved, BlocksStored
from tidemill_engine.held_chains import HeldChains

ROOT = b"r" * 16
SIZE = 2


def fill(pool: BlockPool, tokens: list[int], root: bytes = ROOT) -> list[int]:
    """Hold and register blocks for ``tokens``, as a sequence does."""
    packed = pack(tokens)
    blocks = pool.match(root, packed, limit=len(tokens) // SIZE)
    pool.share(blocks)
    digests = [pool.digest_of(block) for block in blocks]
    more = pool.allocate(-(-len(tokens) // SIZE) - len(blocks))
    assert more is not None
    blocks += more
    for index in range(len(digests), len(tokens) // SIZE):
        parent = digests[-1] if digests else root
        registered = pool.register(blocks[index], parent, pack(tokens[index * SIZE : (index + 1) * SIZE]))
        assert registered is not None
        blocks[index] = registered[0]
        digests.append(registered[1])
    return blocks


@pytest.mark.requirement("engine:prefix-reuse")
def test_a_released_prompt_is_found_again() -> None:
    pool = BlockPool(8, SIZE)
    blocks = fill(pool, [1, 2, 3, 4, 5])
    pool.release(blocks)
    assert pool.used_blocks == 0
    assert pool.match(ROOT, pack([1, 2, 3, 4, 9, 9]), limit=9) == blocks[:2]
    assert pool.match(b"x" * 16, pack([1, 2, 3, 4]), limit=9) == []
    assert pool.match(ROOT, pack([1, 2, 3, 4]), limit=1) == blocks[:1]


def test_a_prefix_is_named_by_its_last_digest() -> None:
    pool = BlockPool(8, SIZE)
    pool.release(fill(pool, [1, 2, 3, 4]))
    last = chain(ROOT, pack([1, 2, 3, 4]), SIZE)[-1]
    assert pool.prefix(ROOT, last, 2) == pack([1, 2, 3, 4])
    assert pool.prefix(ROOT, last, 1) is None
    assert pool.prefix(b"x" * 16, last, 2) is None
    assert pool.prefix(ROOT, b"y" * 16, 1) is None


def test_the_least_recently_used_chain_goes_first_and_from_its_tail() -> None:
    pool = BlockPool(4, SIZE)
    pool.release(fill(pool, [1, 2, 3, 4]))
    pool.release(fill(pool, [5, 6, 7, 8]))
    pool.release(fill(pool, [1, 2, 3, 4]))
    pool.drain_events()
    old = chain(ROOT, pack([5, 6, 7, 8]), SIZE)
    assert pool.allocate(1) is not None
    assert pool.drain_events() == [BlocksRemoved((old[1],))]
    assert pool.allocate(1) is not None
    assert pool.drain_events() == [BlocksRemoved((old[0],))]
    assert len(pool.match(ROOT, pack([1, 2, 3, 4]), limit=2)) == 2


def test_blocks_that_cache_nothing_are_reused_before_cached_ones() -> None:
    pool = BlockPool(4, SIZE)
    pool.release(fill(pool, [1, 2, 3, 4, 5]))
    assert pool.allocate(2) is not None
    assert len(pool.match(ROOT, pack([1, 2, 3, 4]), limit=2)) == 2


def test_two_sequences_with_equal_blocks_come_to_share_them() -> None:
    pool = BlockPool(4, SIZE)
    first, second = pool.allocate(1), pool.allocate(1)
    assert first and second
    kept = pool.register(first[0], ROOT, pack([1, 2]))
    assert kept == pool.register(second[0], ROOT, pack([1, 2]))
    assert pool.used_blocks == 1
    pool.release([first[0]])
    pool.release([first[0]])
    assert pool.used_blocks == 0


@pytest.mark.requirement("engine:no-collision")
def test_a_digest_collision_is_no_hit_and_is_not_cached() -> None:
    pool = BlockPool(4, SIZE, digest=lambda parent, packed: b"same")
    blocks = pool.allocate(2)
    assert blocks
    assert pool.register(blocks[0], ROOT, pack([1, 2])) == (blocks[0], b"same")
    assert pool.register(blocks[1], ROOT, pack([3, 4])) is None
    assert pool.match(ROOT, pack([3, 4]), limit=1) == []


def test_a_second_release_is_refused() -> None:
    pool = BlockPool(2, SIZE)
    blocks = pool.allocate(1)
    assert blocks
    pool.release(blocks)
    with pytest.raises(ValueError, match="not held"):
        pool.release(blocks)


def test_events_tell_chains_and_clearing() -> None:
    pool = BlockPool(8, SIZE)
    blocks = fill(pool, [1, 2, 3, 4])
    digests = tuple(chain(ROOT, pack([1, 2, 3, 4]), SIZE))
    assert pool.drain_events() == [BlocksStored(ROOT, digests)]
    pool.clear()
    assert pool.drain_events() == []
    pool.release(blocks)
    pool.clear()
    assert pool.drain_events() == [BlocksCleared()]
    assert pool.match(ROOT, pack([1, 2]), limit=1) == []


def short_digest(parent: bytes, packed_ids: bytes) -> bytes:
    """Collides often."""
    return bytes([blake2b(parent + packed_ids, digest_size=1).digest()[0] % 24])


class Held:
    """A sequence of the state machine."""

    def __init__(self, root: bytes, tokens: list[int], blocks: list[int], digests: list[bytes]) -> None:
        self.root, self.tokens, self.blocks, self.digests = root, tokens, blocks, digests
        self.registrable = True


class PoolMachine(RuleBasedStateMachine):
    @initialize(count=st.integers(1, 12), collide=st.booleans())
    def start(self, count: int, collide: bool) -> None:
        self.pool = BlockPool(count, SIZE, short_digest) if collide else BlockPool(count, SIZE)
        self.held: list[Held] = []
        self.content: dict[int, tuple[bytes, list[int]]] = {}
        self.mirror = HeldChains()

    @rule(root=st.sampled_from([b"a" * 16, b"b" * 16]), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=12))
    def admit(self, root: bytes, tokens: list[int]) -> None:
        matched = self.pool.match(root, pack(tokens), limit=(len(tokens) - 1) // SIZE)
        for index, block in enumerate(matched):
            assert self.content[block] == (root, tokens[: (index + 1) * SIZE])
        digests = [self.pool.digest_of(block) for block in matched]
        fresh = -(-len(tokens) // SIZE) - len(matched)
        enough = self.pool.free_blocks - self.pool.unused_among(matched) >= fresh
        self.pool.share(matched)
        more = self.pool.allocate(fresh)
        assert (more is not None) == enough
        if more is None:
            self.pool.release(matched)
            return
        assert len({*matched, *more}) == len(matched) + len(more)
        assert not set(more) & {block for other in self.held for block in other.blocks}
        self.held.append(Held(root, tokens, matched + more, digests))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def register_next(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        index = len(held.digests)
        if not held.registrable or index >= len(held.tokens) // SIZE:
            return
        parent = held.digests[-1] if index else held.root
        packed = pack(held.tokens[index * SIZE : (index + 1) * SIZE])
        registered = self.pool.register(held.blocks[index], parent, packed)
        if registered is None:
            held.registrable = False
            return
        if registered[0] == held.blocks[index]:
            self.content[registered[0]] = (held.root, held.tokens[: (index + 1) * SIZE])
        else:
            assert self.content[registered[0]] == (held.root, held.tokens[: (index + 1) * SIZE])
        held.blocks[index] = registered[0]
        held.digests.append(registered[1])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        self.pool.release(held.blocks)

    @rule()
    def clear(self) -> None:
        self.pool.clear()

    @invariant()
    def counts_and_chains_are_right(self) -> None:
        self.pool.check_integrity()
        assert self.pool.used_blocks == len({block for held in self.held for block in held.blocks})
        assert self.pool.used_blocks + self.pool.free_blocks == self.pool.total_blocks

    @invariant()
    def events_mirror_the_cache(self) -> None:
        self.mirror.apply(self.pool.drain_events())
        told = {digest for run in self.mirror.chains() for digest in run.digests}
        assert told == self.pool.cached_digests

    def teardown(self) -> None:
        for held in self.held:
            self.pool.release(held.blocks)
        assert self.pool.used_blocks == 0
        self.pool.check_integrity()


TestPoolMachine = pytest.mark.requirement("engine:no-block-leaks")(PoolMachine.TestCase)
PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
