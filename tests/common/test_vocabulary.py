from __future__ import annotations

import json
from pathlib import Path

from tidemill_common.vocabulary import Vocabulary


def test_added_tokens_that_are_text_are_no_control_tokens(tmp_path: Path) -> None:
    added = [{"id": 2, "content": "<|im_end|>", "special": True}, {"id": 3, "content": "<tool_call>", "special": False}]
    tokenizer = {"model": {"vocab": {"a": 0, "Ġb": 1}}, "added_tokens": added}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    vocabulary = Vocabulary.load(tmp_path)
    assert vocabulary.token_bytes == (b"a", b" b", b"<|im_end|>", b"<tool_call>")
    assert vocabulary.control_ids == {2}
    assert vocabulary.special_ids == {"<|im_end|>": 2, "<tool_call>": 3}
    assert vocabulary.decode([0, 1, 3, 99]) == b"a b<tool_call>"
