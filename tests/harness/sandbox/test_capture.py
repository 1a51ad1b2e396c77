from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill_harness.sandbox.capture import Capture


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 60))
def test_head_and_tail_of_the_output_are_kept_within_the_limit(parts: list[bytes], limit: int) -> None:
    capture, whole = Capture(limit), b"".join(parts)
    for part in parts:
        capture.add(part)
    assert capture.total == len(whole)
    assert capture.dropped == max(0, len(whole) - limit)
    if not capture.dropped:
        assert capture.text() == whole.decode("utf-8", "replace")
    else:
        assert capture.text().startswith(whole[: limit // 2].decode("utf-8", "replace"))
        assert capture.text().endswith(whole[len(whole) - (limit - limit // 2) :].decode("utf-8", "replace"))
