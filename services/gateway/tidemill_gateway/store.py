"""Stored responses in SQLite: one row per response with what it added, linked to the response before it.

One thread owns the database, so a read sees every write asked for before it, and the event loop never waits for the disk. A
response that others continue is only marked deleted; its row goes when the last of them goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final, TypeVar

from tidemill_common import telemetry
from tidemill_common.errors import Reason, TidemillError

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
MAX_DEPTH: Final = 100_000
READ_SECONDS: Final = 10.0
TRIM_EVERY: Final = 1000
TRIM_ROUNDS: Final = 200


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One row.

    Attributes:
        id: response id.
        tenant: whose it is.
        parent: id of the response that it continues; None for a first one.
        fingerprint: of the model that the tokens belong to.
        created: seconds since the epoch.
        start: tokens before the own ones; 0 when ``packed`` holds the conversation from its beginning.
        packed: own token ids, packed little-endian uint32: what was rendered, then what was sampled.
        output_bytes: bytes at the end of ``packed`` that were sampled.
        state: render state after the rendered part.
        preamble: digest of instructions and tools.
        model_turns: turns that a model generated, up to and with this one.
        text_tail: end of the conversation's text, context of the next safety check.
        items: input items, canonical JSON.
        response: the response object, JSON.
    """

    id: str
    tenant: str
    parent: str | None
    fingerprint: str
    created: float
    start: int
    packed: bytes
    output_bytes: int
    state: bytes
    preamble: bytes
    model_turns: int
    text_tail: str
    items: str
    response: str


_COLUMNS = ", ".join(field.name for field in fields(StoredResponse))
_MARKS = ", ".join("?" for _ in fields(StoredResponse))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS responses (
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, parent TEXT, fingerprint TEXT NOT NULL, created REAL NOT NULL,
  start INTEGER NOT NULL, packed BLOB NOT NULL, output_bytes INTEGER NOT NULL, state BLOB NOT NULL, preamble BLOB NOT NULL,
  model_turns INTEGER NOT NULL, text_tail TEXT NOT NULL, items TEXT NOT NULL, response TEXT NOT NULL,
  deleted INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS responses_parent ON responses (parent);
CREATE INDEX IF NOT EXISTS responses_created ON responses (created);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_CHAIN = f"""
WITH RECURSIVE chain (depth, {_COLUMNS}) AS (
  SELECT 0, {_COLUMNS} FROM responses WHERE id = ? AND tenant = ? AND deleted = 0
  UNION ALL
  SELECT depth + 1, {", ".join(f"r.{field.name}" for field in fields(StoredResponse))}
  FROM responses r JOIN chain ON r.id = chain.parent AND r.tenant = chain.tenant
)
SELECT {_COLUMNS} FROM chain ORDER BY depth DESC LIMIT {MAX_DEPTH}
"""
_UNREFERENCED = "NOT EXISTS (SELECT 1 FROM responses child WHERE child.parent = responses.id)"


class ResponseStore:
    """Stored responses of every tenant."""

    def __init__(self, path: Path, days: float, queue: int) -> None:
        self.path = path
        self._keep_seconds = days * 86400
        self._room = asyncio.Semaphore(queue)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._written = 0
        self._pending: set[asyncio.Future[None]] = set()

    async def open(self) -> None:
        """Open or make the file. Raises TidemillError(CONFIG) when it is not a store of this version."""
        try:
            await self._run(self._open)
        except (sqlite3.Error, OSError) as error:
            raise TidemillError(Reason.CONFIG, f"response store {str(self.path)!r} can't be opened: {error}") from error
        await self._run(self._trim)

    async def close(self) -> None:
        """Finish the writes asked for and close the file."""
        if self._pending:
            await asyncio.wait(self._pending)
        await self._run(self._close)
        self._thread.shutdown()

    async def put(self, row: StoredResponse) -> None:
        """Have ``row`` written; waits only when as many rows as the queue has places are still to be written."""
        await self._room.acquire()
        # Handed to the thread now and not by a task later, so that a read that follows comes after it.
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._insert, row)
        self._pending.add(future)
        future.add_done_callback(self._finished)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """The row of a tenant's response, or None."""
        return await self._read(lambda: self._select(tenant, response_id))

    async def chain(self, tenant: str, response_id: str) -> list[StoredResponse]:
        """A tenant's response and all that it continues, oldest first; empty when it is unknown or an ancestor is missing."""
        rows = await self._read(lambda: self._select_chain(tenant, response_id))
        return rows if rows and rows[0].parent is None else []

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a tenant's response; False when there is none."""
        return await self._read(lambda: self._delete(tenant, response_id))

    def _finished(self, future: asyncio.Future[None]) -> None:
        self._pending.discard(future)
        self._room.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            telemetry.ERRORS.labels("gateway", Reason.INTERNAL).inc()
            log.error("a response could not be stored in %s: %s", self.path, error)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._run(work)
        except (sqlite3.Error, TimeoutError) as error:
            raise TidemillError(Reason.UNAVAILABLE, f"the response store does not answer: {error!r}") from error

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"schema version is {version}, this gateway reads {SCHEMA_VERSION}")
        self._db.executescript(_SCHEMA)

    def _close(self) -> None:
        self._db.close()

    def _insert(self, row: StoredResponse) -> None:
        self._db.execute(f"INSERT OR REPLACE INTO responses ({_COLUMNS}) VALUES ({_MARKS})", astuple(row))
        self._written += 1
        if self._written % TRIM_EVERY == 0:
            self._trim()

    def _select(self, tenant: str, response_id: str) -> StoredResponse | None:
        query = f"SELECT {_COLUMNS} FROM responses WHERE id = ? AND tenant = ? AND deleted = 0"
        row = self._db.execute(query, (response_id, tenant)).fetchone()
        return StoredResponse(*row) if row else None

    def _select_chain(self, tenant: str, response_id: str) -> list[StoredResponse]:
        return [StoredResponse(*row) for row in self._db.execute(_CHAIN, (response_id, tenant))]

    def _delete(self, tenant: str, response_id: str) -> bool:
        found = self._select(tenant, response_id)
        if found is None:
            return False
        self._db.execute("UPDATE responses SET deleted = 1 WHERE id = ? AND tenant = ?", (response_id, tenant))
        here: str | None = response_id
        while here is not None:
            row = self._db.execute(
                f"DELETE FROM responses WHERE id = ? AND deleted = 1 AND {_UNREFERENCED} RETURNING parent", (here,)
            ).fetchone()
            here = row[0] if row else None
        return True

    def _trim(self) -> None:
        """Forget conversations whose last turn is too old, from their ends, so that no kept response loses an ancestor."""
        cutoff = time.time() - self._keep_seconds
        for _ in range(TRIM_ROUNDS):
            gone = self._db.execute(f"DELETE FROM responses WHERE created < ? AND {_UNREFERENCED}", (cutoff,)).rowcount
            if gone == 0:
                return
