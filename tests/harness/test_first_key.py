from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common import paths
from tidemill_common.keys import KeyRing
from tidemill_harness import first_key


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.requirement("keys:first")
def test_the_first_start_makes_a_key_whose_hash_alone_is_in_the_key_file() -> None:
    plain = first_key.ensure()
    assert paths.first_key_file().read_text() == plain + "\n"
    assert plain not in paths.keys_file().read_text()
    assert KeyRing.load(paths.keys_file()).authenticate(plain) is not None
    for path in (paths.first_key_file(), paths.keys_file()):
        assert path.stat().st_mode & 0o777 == 0o600


def test_later_starts_keep_it_and_a_revoked_one_is_replaced() -> None:
    plain = first_key.ensure()
    assert first_key.ensure() == plain
    with first_key.locked_ring() as ring:
        ring.revoke(ring.records[0].id)
        ring.save(paths.keys_file())
    assert first_key.ensure() != plain


def test_other_keys_stay() -> None:
    with first_key.locked_ring() as ring:
        other, _ = ring.add("someone")
        ring.save(paths.keys_file())
    first_key.ensure()
    assert KeyRing.load(paths.keys_file()).authenticate(other) is not None
