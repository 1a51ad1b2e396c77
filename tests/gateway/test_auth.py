from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_common.keys import KeyRing
from tidemill_gateway.auth import Authenticator, check_host, host_name, origin_allowed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Monotonic time, as a list of one."""
    now = [1000.0]
    monkeypatch.setattr("tidemill_gateway.auth.time.monotonic", lambda: now[0])
    return now


def save(path: Path, *tenants: str) -> list[str]:
    ring = KeyRing()
    plain = [ring.add(tenant)[0] for tenant in tenants]
    ring.save(path)
    return plain


@pytest.mark.requirement("gateway:no-keys-no-start")
def test_without_keys_it_refuses_to_start_unless_told_otherwise(tmp_path: Path) -> None:
    with pytest.raises(TidemillError) as error:
        Authenticator(tmp_path / "keys.json", allow_anonymous=False)
    assert error.value.reason is Reason.CONFIG
    assert "tidemill key add" in error.value.message
    assert Authenticator(tmp_path / "keys.json", allow_anonymous=True).caller(None).tenant == "anonymous"


def test_a_key_names_its_tenant(tmp_path: Path) -> None:
    one, two = save(tmp_path / "keys.json", "one", "two")
    checker = Authenticator(tmp_path / "keys.json", allow_anonymous=False)
    assert checker.caller(f"Bearer {one}").tenant == "one"
    assert checker.caller(f"bearer  {two} ").tenant == "two"


@pytest.mark.parametrize("value", [None, "", "Bearer", "Bearer nope", "Basic eDp5", "nope"])
def test_anything_else_is_refused(tmp_path: Path, value: str | None) -> None:
    save(tmp_path / "keys.json", "one")
    with pytest.raises(TidemillError) as error:
        Authenticator(tmp_path / "keys.json", allow_anonymous=False).caller(value)
    assert error.value.reason is Reason.INVALID_API_KEY


def test_a_wrong_key_is_refused_even_where_none_is_needed(tmp_path: Path) -> None:
    with pytest.raises(TidemillError):
        Authenticator(tmp_path / "keys.json", allow_anonymous=True).caller("Bearer nope")


def test_keys_are_read_again_when_their_file_changes(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "keys.json"
    (old,) = save(path, "one")
    checker = Authenticator(path, allow_anonymous=False)
    (new,) = save(path, "two")
    with pytest.raises(TidemillError):
        checker.caller(f"Bearer {new}")
    clock[0] += 2
    assert checker.caller(f"Bearer {new}").tenant == "two"
    with pytest.raises(TidemillError):
        checker.caller(f"Bearer {old}")


def test_a_file_broken_in_between_changes_nothing(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "keys.json"
    (key,) = save(path, "one")
    checker = Authenticator(path, allow_anonymous=False)
    path.write_text("{")
    clock[0] += 2
    assert checker.caller(f"Bearer {key}").tenant == "one"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("localhost:8080", "localhost"),
        ("[::1]:8080", "::1"),
        ("EXAMPLE.org", "example.org"),
        ("http://a.b:1/c", "a.b"),
        ("", ""),
        ("[bad", ""),
    ],
)
def test_host_names_are_read_without_ports(value: str, name: str) -> None:
    assert host_name(value) == name


def test_only_named_hosts_are_answered_where_hosts_are_named() -> None:
    check_host("anything", None)
    check_host("localhost:1", frozenset({"localhost"}))
    for wrong in ("evil.example", "", None):
        with pytest.raises(TidemillError):
            check_host(wrong, frozenset({"localhost"}))


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "x", True),
        ("http://localhost:3000", "127.0.0.1:8080", True),
        ("https://gateway.example", "gateway.example", True),
        ("https://evil.example", "gateway.example", False),
        ("null", "localhost", False),
        ("", "localhost", False),
        ("evil.example", "evil.example", False),
    ],
)
def test_pages_of_other_hosts_are_kept_out(origin: str | None, host: str, allowed: bool) -> None:
    assert origin_allowed(origin, host) is allowed


def test_a_caller_let_in_before_is_refused_once_its_key_is_revoked(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "keys.json"
    one, _ = save(path, "one", "two")
    checker = Authenticator(path, allow_anonymous=True)
    caller = checker.caller(f"Bearer {one}")
    checker.check_still_known(caller)
    checker.check_still_known(checker.caller(None))
    save(path, "two")
    clock[0] += 2
    with pytest.raises(TidemillError) as error:
        checker.check_still_known(caller)
    assert error.value.reason is Reason.INVALID_API_KEY
