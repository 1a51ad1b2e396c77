from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway import secret


@pytest.mark.requirement("gateway:digest-secret")
def test_the_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "secret"
    made = secret.load_or_make(path)
    assert len(made) == 32
    assert secret.load_or_make(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"zz", b"ab" * 16, b"\xff"])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(TidemillError, match="secret") as error:
        secret.load_or_make(path)
    assert error.value.reason is Reason.CONFIG
