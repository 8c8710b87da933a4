"""The journal: every change in an SQLite file, so that a server that is killed comes back as it was.

Memory is the read path; the file is for restarts. One thread writes, all changes that wait in one transaction
(group commit), and an answer is given only after its transaction is in the write-ahead log. Revisions are reserved in
blocks before they are used, so that none is ever given twice, not even one that was lost with the process.
"""

import asyncio
import fcntl
import os
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import msgspec

from kubetide.embedded.objects import DEFAULT_WINDOW, LogEvent, ObjectStore, ResourceKey, StoreKey
from kubetide.errors import InvalidInput, Unavailable

_BLOCK = 100_000
_BATCH = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    api_group TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (api_group, plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class _Record:
    resource: ResourceKey
    key: StoreKey
    revision: int
    body: bytes | None


class Journal:
    """The durable side of one store, in one directory that nobody else uses."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(directory / "lock")
        self._path = directory / "objects.db"
        self._database = self._open()
        self._queue: SimpleQueue[_Record | None] = SimpleQueue()
        self._written = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failed: str = ""

    def _open(self) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise InvalidInput(f"cannot be opened: {error}", subject=str(self._path)) from error
        return database

    def fact(self, name: str) -> str | None:
        """Return a small fact kept beside the objects, such as a key."""
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row is not None else None

    def set_fact(self, name: str, value: str) -> None:
        """Keep a small fact. Only before the journal is started."""
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def load(self, *, window: int = DEFAULT_WINDOW) -> ObjectStore:
        """Return the store as it was, at a revision that was never given before."""
        newest = self._database.execute("SELECT COALESCE(MAX(revision), 0) FROM objects").fetchone()[0]
        reserved = int(self.fact("reserved") or 0)
        revision = max(int(newest), reserved, 1)
        self.set_fact("reserved", str(revision + _BLOCK))
        self._reserved = revision + _BLOCK
        store = ObjectStore(window=window, revision=revision)
        rows = self._database.execute("SELECT api_group, plural, namespace, name, revision, body FROM objects")
        for group, plural, namespace, name, written, body in rows:
            obj = msgspec.json.decode(body)
            store.restore(ResourceKey(group, plural), StoreKey(namespace, name), obj, int(written))
        self._written = revision
        store.listen(self._record)
        return store

    def start(self) -> None:
        """Begin to write. Changes made before this are written first."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_loop, name="journal", daemon=True)
        self._thread.start()

    async def durable(self, revision: int) -> None:
        """Wait until everything up to `revision` is on disk."""
        if revision <= self._written:
            return
        if self._failed:
            raise Unavailable(f"the journal cannot be written: {self._failed}")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        await future

    async def close(self) -> None:
        """Write what waits, and give the directory back."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        self._database.close()
        self._lock.close()

    def _record(self, resource: ResourceKey, event: LogEvent) -> None:
        body = None if event.change == "DELETED" else event.entry.encoded
        self._queue.put(_Record(resource, event.entry.key, event.revision, body))

    def _write_loop(self) -> None:
        while True:
            record = self._queue.get()
            batch: list[_Record] = []
            while record is not None:
                batch.append(record)
                if len(batch) >= _BATCH or self._queue.empty():
                    break
                record = self._queue.get()
            if batch:
                try:
                    self._write(batch)
                    self._tell(max(item.revision for item in batch), "")
                except sqlite3.Error as error:
                    self._tell(0, str(error))
                    return
            if record is None:
                return

    def _write(self, batch: list[_Record]) -> None:
        database = self._database
        database.execute("BEGIN")
        for item in batch:
            if item.body is None:
                database.execute(
                    "DELETE FROM objects WHERE api_group = ? AND plural = ? AND namespace = ? AND name = ?",
                    (*item.resource, *item.key),
                )
            else:
                database.execute(
                    "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
                    (*item.resource, *item.key, item.revision, item.body),
                )
        newest = max(item.revision for item in batch)
        if newest + _BLOCK // 2 > self._reserved:
            self._reserved = newest + _BLOCK
            database.execute("INSERT OR REPLACE INTO facts VALUES ('reserved', ?)", (str(self._reserved),))
        database.execute("COMMIT")

    def _tell(self, revision: int, failure: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_written, revision, failure)

    def _on_written(self, revision: int, failure: str) -> None:
        self._written = max(self._written, revision)
        self._failed = failure or self._failed
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, future in self._waiting:
            if future.done():
                continue
            if failure:
                future.set_exception(Unavailable(f"the journal cannot be written: {failure}"))
            elif wanted <= self._written:
                future.set_result(None)
            else:
                still.append((wanted, future))
        self._waiting = still


def _lock(path: Path) -> IO[str]:
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise InvalidInput("another server uses this directory", subject=str(path.parent)) from error
    handle.seek(0)
    handle.truncate()
    handle.write(f"{os.getpid()}\n")
    handle.flush()
    return handle
