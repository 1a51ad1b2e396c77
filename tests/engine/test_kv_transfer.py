from __future__ import annotations

import pytest
import torch

from tidemill_common.errors import Reason, TidemillError
from tidemill_engine import kv_transfer
from tidemill_engine.kv_cache import KvCache
from tidemill_engine.kv_transfer import KvLayout

LAYOUT = KvLayout(layers=2, block_size=4, kv_heads=2, head_dim=8, dtype="bfloat16")


def filled(blocks: int = 4) -> KvCache:
    cache = KvCache(LAYOUT, blocks)
    cache.data.copy_(torch.randn(cache.data.shape))
    return cache


def test_blocks_arrive_as_they_left() -> None:
    source, target = filled(), KvCache(LAYOUT, 4)
    data, sums = source.export_blocks([2, 0], 8)
    kv_transfer.verify(data, 8, sums, LAYOUT)
    target.import_blocks([1, 3], kv_transfer.split(data, 8, LAYOUT))
    assert torch.equal(target.data[1], source.data[2])
    assert torch.equal(target.data[3], source.data[0])


def test_the_unused_part_of_the_last_block_does_not_travel() -> None:
    source, target = filled(), KvCache(LAYOUT, 4)
    data, _ = source.export_blocks([2, 0], 5)
    target.import_blocks([0, 1], kv_transfer.split(data, 5, LAYOUT))
    assert torch.equal(target.data[0], source.data[2])
    assert torch.equal(target.data[1][:, :, :1], source.data[0][:, :, :1])
    assert not target.data[1][:, :, 1:].any()


@pytest.mark.requirement("engine:kv-checksums")
@pytest.mark.parametrize("place", [0, 700, -1])
def test_a_flipped_bit_is_found(place: int) -> None:
    data, sums = filled().export_blocks([0, 1], 8)
    broken = bytearray(data)
    broken[place] ^= 1
    with pytest.raises(TidemillError) as caught:
        kv_transfer.verify(bytes(broken), 8, sums, LAYOUT)
    assert caught.value.reason is Reason.KV_CORRUPT


@pytest.mark.parametrize("tokens", [0, 4, 9])
def test_a_chunk_of_the_wrong_size_is_refused(tokens: int) -> None:
    data, sums = filled().export_blocks([0, 1], 8)
    with pytest.raises(TidemillError, match="of KV need"):
        kv_transfer.verify(data, tokens, sums, LAYOUT)


def test_a_missing_checksum_is_refused() -> None:
    data, sums = filled().export_blocks([0, 1], 8)
    with pytest.raises(TidemillError, match="1 checksums"):
        kv_transfer.verify(data, 8, sums[:1], LAYOUT)


def test_the_fingerprint_tells_model_type_and_block_size() -> None:
    names = {
        LAYOUT.fingerprint("a"),
        LAYOUT.fingerprint("b"),
        KvLayout(2, 4, 2, 8, "float32").fingerprint("a"),
        KvLayout(2, 8, 2, 8, "bfloat16").fingerprint("a"),
        KvLayout(2, 4, 4, 4, "bfloat16").fingerprint("a"),
    }
    assert len(names) == 5
