from __future__ import annotations

import grpc
import pytest

from tidemill_common.errors import CATALOGUE, Reason, TidemillError


@pytest.mark.requirement("errors:catalogue")
@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_status_on_each_boundary_and_a_line_that_helps(reason: Reason) -> None:
    entry = CATALOGUE[reason]
    assert entry.grpc in grpc.StatusCode.__members__
    assert entry.grpc != "OK"
    assert 400 <= entry.http <= 599
    assert entry.code == entry.code.lower()
    assert entry.type.endswith("_error")
    assert entry.advice.endswith((".", ")"))
    assert (entry.http < 500) == (entry.type != "server_error")


def test_the_catalogue_has_nothing_else_and_values_are_names() -> None:
    assert set(CATALOGUE) == set(Reason)
    assert all(reason.name == reason.value for reason in Reason)


@pytest.mark.parametrize("message", ["no such model 'x'", "no such model 'x'."])
def test_a_sentence_is_message_and_advice(message: str) -> None:
    error = TidemillError(Reason.MODEL_NOT_FOUND, message, "model")
    assert error.sentence() == "no such model 'x'. GET /v1/models lists what is served."
    assert (str(error), error.param, error.entry.http) == (message, "model", 404)
