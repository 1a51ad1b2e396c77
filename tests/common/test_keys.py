from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.keys import KeyRing


@pytest.mark.requirement("keys:hashed")
def test_a_key_is_kept_as_its_hash_and_recognised(tmp_path: Path) -> None:
    ring = KeyRing()
    plain, record = ring.add("acme", {"turns": 5})
    ring.save(tmp_path / "keys.json")
    text = (tmp_path / "keys.json").read_text(encoding="utf-8")
    assert plain not in text
    assert hashlib.sha256(plain.encode()).hexdigest() in text
    found = KeyRing.load(tmp_path / "keys.json").authenticate(plain)
    assert found == record
    assert (record.tenant, record.limits) == ("acme", {"turns": 5})


def test_keys_differ_and_share_a_tenant() -> None:
    ring = KeyRing()
    (one, first), (two, second) = ring.add("acme"), ring.add("acme")
    assert one != two
    assert first.id != second.id
    assert ring.authenticate(one) == first
    assert ring.authenticate(two) == second


@given(st.text(st.characters(codec=None), max_size=40))
def test_a_hostile_key_is_just_wrong(plain: str) -> None:
    ring = KeyRing()
    ring.add()
    assert ring.authenticate(plain) is None


def test_a_revoked_key_is_forgotten() -> None:
    ring = KeyRing()
    plain, record = ring.add()
    assert ring.revoke(record.id)
    assert not ring.revoke(record.id)
    assert ring.authenticate(plain) is None


def test_a_missing_file_is_an_empty_ring_and_a_saved_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys.json"
    assert KeyRing.load(path).records == []
    KeyRing().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["keys.json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        json.dumps({"keys": [{"id": "a"}]}),
        json.dumps({"keys": [5]}),
        json.dumps({"keys": [{"id": "a", "hash": "é", "tenant": "t", "created": 0}]}),
        json.dumps({"keys": [{"id": "a", "hash": 5, "tenant": "t", "created": 0}]}),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TidemillError, match=r"keys\.json") as caught:
        KeyRing.load(path)
    assert caught.value.reason is Reason.CONFIG
