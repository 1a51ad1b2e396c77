from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_gateway.store import ResponseStore, StoredResponse


def row(response_id: str, parent: str | None = None, *, tenant: str = "t", created: float | None = None) -> StoredResponse:
    return StoredResponse(
        id=response_id,
        tenant=tenant,
        parent=parent,
        fingerprint="f",
        created=time.time() if created is None else created,
        start=0,
        packed=b"1234",
        output_bytes=4,
        state=b"s",
        preamble=b"p",
        model_turns=1,
        text_tail="tail \N{SNOWMAN}",
        items='"Hi"',
        response="{}",
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ResponseStore]:
    opened = ResponseStore(tmp_path / "state" / "responses.sqlite", days=30, queue=4)
    await opened.open()
    yield opened
    await opened.close()


async def ids(store: ResponseStore, response_id: str, tenant: str = "t") -> list[str]:
    return [each.id for each in await store.chain(tenant, response_id)]


async def test_a_row_is_read_back_as_it_was_written(store: ResponseStore) -> None:
    written = row("a")
    await store.put(written)
    assert await store.get("t", "a") == written


async def test_more_rows_than_the_queue_holds_are_all_written(store: ResponseStore) -> None:
    for number in range(50):
        await store.put(row(f"r{number}", f"r{number - 1}" if number else None))
    assert await ids(store, "r49") == [f"r{number}" for number in range(50)]


@pytest.mark.requirement("gateway:store-survives")
async def test_rows_survive_the_process_and_their_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    first = ResponseStore(path, 30, 4)
    await first.open()
    await first.put(row("a"))
    await first.put(row("b", "a"))
    await first.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = ResponseStore(path, 30, 4)
    await second.open()
    assert await ids(second, "b") == ["a", "b"]
    await second.close()


async def test_a_tenant_reads_and_deletes_only_its_own(store: ResponseStore) -> None:
    await store.put(row("a", tenant="one"))
    assert await store.get("two", "a") is None
    assert await ids(store, "a", "two") == []
    assert not await store.delete("two", "a")
    assert await store.delete("one", "a")


async def test_a_deleted_ancestor_still_carries_those_that_follow_it(store: ResponseStore) -> None:
    for each in (row("a"), row("b", "a"), row("c", "b")):
        await store.put(each)
    assert await store.delete("t", "a")
    assert await store.delete("t", "b")
    assert await store.get("t", "b") is None
    assert await ids(store, "b") == []
    assert await ids(store, "c") == ["a", "b", "c"]


async def test_deleting_the_last_descendant_removes_every_row(store: ResponseStore) -> None:
    for each in (row("a"), row("b", "a")):
        await store.put(each)
    await store.delete("t", "a")
    await store.delete("t", "b")
    with sqlite3.connect(store.path) as database:
        assert database.execute("SELECT count(*) FROM responses").fetchone() == (0,)
    database.close()


async def test_a_chain_with_a_missing_ancestor_is_unknown(store: ResponseStore) -> None:
    await store.put(row("b", "gone"))
    assert await ids(store, "b") == []


async def test_old_conversations_go_and_old_ancestors_of_young_responses_stay(tmp_path: Path) -> None:
    path, old = tmp_path / "responses.sqlite", time.time() - 3 * 86400
    store = ResponseStore(path, days=5, queue=4)
    await store.open()
    for each in (row("a", created=old), row("b", "a"), row("c", created=old), row("d", "c", created=old)):
        await store.put(each)
    await store.close()
    again = ResponseStore(path, days=1, queue=4)
    await again.open()
    assert await ids(again, "b") == ["a", "b"]
    assert await ids(again, "c") == await ids(again, "d") == []
    await again.close()


@pytest.mark.parametrize("kind", ["garbage", "version"])
async def test_a_file_that_is_no_store_of_this_version_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "responses.sqlite"
    if kind == "garbage":
        path.write_bytes(b"not a database" * 100)
    else:
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
    store = ResponseStore(path, 30, 4)
    with pytest.raises(TidemillError) as error:
        await store.open()
    assert error.value.reason is Reason.CONFIG
    assert str(path) in error.value.message
    await store.close()


async def test_a_failed_write_is_told_and_does_not_stop_the_next(
    store: ResponseStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put(replace(row("bad"), tenant=None))  # type: ignore[arg-type]
    await store.put(row("good"))
    assert (await store.get("t", "good")) is not None
    assert "could not be stored" in caplog.text
