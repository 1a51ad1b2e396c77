from __future__ import annotations

import pytest
from openai.types import Model

from tidemill_gateway.catalogue import BASE_INSTRUCTIONS, ModelCard, models_body

CARD = ModelCard("smollm2", 1_700_000_000, 8192, require_tool_first=True, tool_call_format="chatml")


def test_the_list_is_one_that_the_sdk_knows() -> None:
    body = models_body([CARD])
    (listed,) = body["data"]
    assert Model.model_validate(listed).id == "smollm2"
    assert body["object"] == "list"
    assert listed["tidemill"] == {"require_tool_first": True, "context_length": 8192, "tool_call_format": "chatml"}


@pytest.mark.requirement("gateway:lean-catalogue")
def test_the_catalogue_entry_is_lean() -> None:
    (entry,) = models_body([CARD])["models"]
    assert entry["slug"] == "smollm2"
    assert entry["context_window"] == 8192
    assert entry["truncation_policy"] == {"mode": "tokens", "limit": 1024}
    assert entry["supports_search_tool"]
    assert "apply_patch_tool_type" not in entry
    assert len(BASE_INSTRUCTIONS) < 400


def test_entries_keep_their_order() -> None:
    body = models_body([CARD, ModelCard("long", 0, 131_072)])
    assert [(entry["slug"], entry["priority"]) for entry in body["models"]] == [("smollm2", 1), ("long", 2)]
    assert body["models"][1]["truncation_policy"]["limit"] == 10_000
