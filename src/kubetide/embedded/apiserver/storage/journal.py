"""The journal: every change in an SQLite file, so that a server that is killed comes back as it was.

Memory is the read path; the file is for restarts. A change is in the write-ahead log before it is in memory, so
nobody ever reads, or is told of, a write that a restart would take back. Appending to the log waits for no disk
(`synchronous=NORMAL`: the process may be killed at any time, only a power cut may cost the last moments); what does
wait, moving the log into the database, is done by a thread. Revisions are reserved in blocks before they are used, so
that none is ever given twice.

While the file cannot be written (the disk is full) requests to change something are refused with the cause. What the
cluster itself derives from other objects, such as the status of a simulated pod, goes on in memory and is written as
soon as there is room again: refusing it would stop the cluster, and a restart derives it anew.
"""

import asyncio
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

import msgspec

from kubetide.clock import Clock, SystemClock
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, insufficient_storage, internal
from kubetide.embedded.apiserver.storage.datadir import make_private, touch_private
from kubetide.embedded.apiserver.storage.objects import DEFAULT_WINDOW, LogEvent, ObjectStore, ResourceKey, StoreKey
from kubetide.errors import InvalidInput
from kubetide.kube.wire import Timer, Timers, wire_timers
from kubetide.log import get_logger

log = get_logger("apiserver")

_BLOCK = 1_000_000
_RETRY_SECONDS = 1.0
_COMPLAIN_SECONDS = 60.0
_CHECKPOINT_SECONDS = 1.0
_CHECKPOINT_CHANGES = 1000
_PROBE_BYTES = 64 * 1024
"""A disk that has no room for this is still full, though a smaller write may slip through."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    api_group TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (api_group, plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
Changes = dict[tuple[ResourceKey, StoreKey], LogEvent]
"""The newest change of each object."""

Statement = tuple[str, tuple[str | int | bytes, ...]]

_DELETE = "DELETE FROM objects WHERE api_group = ? AND plural = ? AND namespace = ? AND name = ?"
_REPLACE = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)"
_FACT = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
_NO_FACT = "DELETE FROM facts WHERE name = ?"


class Journal:
    """The durable side of one store, in one directory that nobody else uses or reads."""

    def __init__(self, directory: Path, *, clock: Clock | None = None) -> None:
        make_private(directory)
        self.directory = directory
        self._clock = clock or SystemClock()
        self._lock = _lock(directory / "lock")
        self._path = directory / "objects.db"
        self._database = self._open()
        self._reserved = 0
        self._postponed: Changes = {}
        """Derived changes that are not on disk yet."""
        self._trouble = ""
        self._full = False
        self._complained: float | None = None
        self._told = False
        """Whether the present trouble was logged."""
        self._unmoved = 0
        """Changes since the log was last moved into the database, about."""
        self._timers: Timers | None = None
        self._retry_timer: Timer | None = None
        self._closing = threading.Event()
        self._checkpoints: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """Why nothing can be written at the moment; empty if it can."""
        return self._trouble

    def _open(self) -> sqlite3.Connection:
        try:
            touch_private(self._path)
            database = _connect(self._path)
            database.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            self._lock.close()
            raise InvalidInput(f"cannot be opened: {error}", subject=str(self._path)) from error
        return database

    def fact(self, name: str) -> str | None:
        """Return a small fact kept beside the objects."""
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row is not None else None

    def erase_facts(self, *names: str) -> None:
        """Forget facts so that nothing of them is left in the file, nor in its log."""
        if not any(self.fact(name) is not None for name in names):
            return
        try:
            self._database.execute("PRAGMA secure_delete=ON")
            self._transact([(_NO_FACT, (name,)) for name in names])
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise InvalidInput(f"cannot be written: {error}", subject=str(self._path)) from error

    def load(self, *, window: int = DEFAULT_WINDOW) -> ObjectStore:
        """Return the store as it was, at a revision that was never given before."""
        newest = self._database.execute("SELECT COALESCE(MAX(revision), 0) FROM objects").fetchone()[0]
        revision = max(int(newest), int(self.fact("reserved") or 0), 1)
        self._reserved = revision + _BLOCK
        try:
            self._transact([_reservation(self._reserved)])
        except (sqlite3.Error, OSError) as error:
            raise InvalidInput(f"cannot be written: {error}", subject=str(self._path)) from error
        store = ObjectStore(window=window, revision=revision, persistence=self)
        rows = self._database.execute("SELECT api_group, plural, namespace, name, revision, body FROM objects")
        for group, plural, namespace, name, written, body in rows:
            obj = msgspec.json.decode(body)
            store.restore(ResourceKey(group, plural), StoreKey(namespace, name), obj, int(written))
        return store

    def start(self) -> None:
        """Keep the log short from now on, and try again by itself after a failure."""
        self._timers = wire_timers()
        self._database.execute("PRAGMA wal_autocheckpoint=0")
        self._checkpoints = threading.Thread(target=self._checkpoint_loop, name="journal", daemon=True)
        self._checkpoints.start()

    async def close(self) -> None:
        """Write what waits, and give the directory back."""
        if self._postponed:
            self._retry()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._closing.set()
        if self._checkpoints is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._checkpoints.join)
            self._checkpoints = None
        self._database.close()
        self._lock.close()

    def write(self, resource: ResourceKey, event: LogEvent, *, derived: bool) -> None:
        """Make a change durable, or raise a StatusError if that cannot be done; a derived change is postponed instead.

        What was postponed is written together with what is newer.
        """
        place = (resource, event.entry.key)
        waiting = self._trouble and self._retry_timer is not None
        failure = self._failure() if waiting else self._attempt({**self._postponed, place: event})
        if failure is None:
            return
        # Revisions beyond the reserved ones could be given again after a restart.
        if not derived or event.revision >= self._reserved:
            raise failure
        self._postponed[place] = event

    def _attempt(self, changes: Changes) -> StatusError | None:
        newest = max((event.revision for event in changes.values()), default=0)
        reserved = max(self._reserved, newest + _BLOCK if newest + _BLOCK // 2 > self._reserved else 0)
        statements = [_statement(*place, event) for place, event in changes.items()]
        if reserved > self._reserved:
            statements.append(_reservation(reserved))
        try:
            self._transact(statements)
        except (sqlite3.Error, OSError) as error:
            return self._failed(error)
        self._reserved = reserved
        self._unmoved += len(changes)
        self._postponed.clear()
        if self._trouble:
            self._recovered()
        return None

    def _transact(self, statements: Sequence[Statement]) -> None:
        """Carry out statements, all or none. Everything that is written while the server runs goes through here."""
        try:
            self._database.execute("BEGIN")
            for statement in statements:
                self._database.execute(*statement)
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    # -- while nothing can be written

    def _failed(self, error: sqlite3.Error | OSError) -> StatusError:
        self._trouble = str(error)
        self._full = _is_full(error)
        now = self._clock.monotonic()
        if self._complained is None or now - self._complained >= _COMPLAIN_SECONDS:
            self._complained, self._told = now, True
            log.error("the journal cannot be written, changes are refused", path=str(self._path), error=self._trouble)
        if self._timers is not None and not self._closing.is_set():
            self._retry_timer = self._timers.call_later(_RETRY_SECONDS, self._retry)
        return self._failure()

    def _failure(self) -> StatusError:
        text = f"the change could not be made durable: {self._trouble}"
        return insufficient_storage(text) if self._full else internal(text)

    def _retry(self) -> None:
        """Write what was postponed, or, to find out whether anything can be written, something of no importance."""
        self._retry_timer = None
        try:
            self._transact([(_FACT, ("probe", "x" * _PROBE_BYTES))])
            self._transact([(_NO_FACT, ("probe",))])
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        else:
            self._attempt(self._postponed)

    def _recovered(self) -> None:
        self._trouble = ""
        if self._told:
            self._told = False
            log.info("the journal can be written again", path=str(self._path))

    def _checkpoint_loop(self) -> None:
        database = _connect(self._path)
        try:
            while not self._closing.wait(_CHECKPOINT_SECONDS):
                if self._unmoved < _CHECKPOINT_CHANGES:
                    continue
                self._unmoved = 0
                try:
                    database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                except sqlite3.Error as error:
                    # Nothing is lost: it stays in the log. If that cannot grow either, the next write says so.
                    log.debug("the journal's log stays as long as it is", error=str(error))
        finally:
            database.close()


def _statement(resource: ResourceKey, key: StoreKey, event: LogEvent) -> Statement:
    if event.change == "DELETED":
        return _DELETE, (*resource, *key)
    return _REPLACE, (*resource, *key, event.revision, event.entry.encoded)


def _reservation(revision: int) -> Statement:
    return _FACT, ("reserved", str(revision))


def _is_full(error: sqlite3.Error | OSError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    return database


def _lock(path: Path) -> IO[str]:
    try:
        touch_private(path)
        handle = path.open("r+")
    except OSError as error:
        raise InvalidInput(f"cannot be opened: {error.strerror}", subject=str(path)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise InvalidInput("another server uses this directory", subject=str(path.parent)) from error
    try:
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
    except OSError as error:
        handle.close()
        raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(path)) from error
    return handle


# When a cluster goes on that had lived faster than real time, its clock must not go back.


def parse_stamp(text: object) -> datetime | None:
    """Return the time of a stamp, if it has one."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def resume_time(objects: Iterable[Raw], now: datetime) -> datetime:
    """Return the time to go on from: `now`, or just after the newest stamp on an object if that is later."""
    newest = max((stamp for obj in objects for stamp in stamps_of(obj.get("metadata") or {})), default="")
    reached = parse_stamp(newest)
    return max(now, reached + timedelta(seconds=1)) if reached is not None else now


def stamps_of(metadata: Raw) -> Iterable[str]:
    """Yield the stamps of the server, all in the one form that it writes, which sorts as text."""
    created = metadata.get("creationTimestamp")
    if isinstance(created, str):
        yield created
    for entry in metadata.get("managedFields") or ():
        if isinstance(entry.get("time"), str):
            yield entry["time"]
