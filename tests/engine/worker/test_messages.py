from __future__ import annotations

import math

import pytest

from tidemill.common.v1 import common_pb2
from tidemill_common.errors import Reason, TidemillError
from tidemill_common.tokens import pack
from tidemill_engine.sampling import SamplingParams
from tidemill_engine.worker import messages


def test_sampling_is_read_field_by_field() -> None:
    message = common_pb2.Sampling(
        temperature=0.5,
        top_p=0.25,
        seed=7,
        max_tokens=9,
        stop=["a"],
        end_token_ids=pack([2]),
        grammar="g",
        forced_token_ids=pack([3, 4]),
    )
    assert messages.sampling(message) == SamplingParams(0.5, 0.25, 7, 9, ("a",), (2,), "g", (3, 4))


def test_a_top_p_of_zero_reads_as_one() -> None:
    assert messages.sampling(common_pb2.Sampling()).top_p == 1.0


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (common_pb2.Sampling(temperature=math.nan), "temperature"),
        (common_pb2.Sampling(temperature=math.inf), "temperature"),
        (common_pb2.Sampling(top_p=math.nan), "top_p"),
        (common_pb2.Sampling(top_p=-0.5), "top_p"),
        (common_pb2.Sampling(end_token_ids=b"abc"), "end_token_ids"),
        (common_pb2.Sampling(forced_token_ids=b"a"), "forced_token_ids"),
    ],
)
def test_a_field_out_of_range_is_named(message: common_pb2.Sampling, param: str) -> None:
    with pytest.raises(TidemillError) as caught:
        messages.sampling(message)
    assert (caught.value.reason, caught.value.param) == (Reason.INVALID_REQUEST, param)


def test_a_digest_of_another_length_is_refused() -> None:
    assert messages.digest(b"d" * 16, "root_digest") == b"d" * 16
    with pytest.raises(TidemillError) as caught:
        messages.digest(b"d" * 15, "root_digest")
    assert caught.value.param == "root_digest"
