"""The samples on disk: one SQLite file that survives a restart and a kill at any moment.

Every batch is one row, written at once; when a minute is over its rows become one compressed row. Compressed values
keep 12 bits of mantissa (an error below 1.3e-4), which is enough for a past that only fills windows after a restart;
the present is exact. Retention is by age and by size, whichever is less.

The past is never worth the present: a disk that is full, a file that is locked or may not be read leaves the agent
without history until that is over. It is reported once and shown, and tried again every few seconds. Only a file that
SQLite itself calls corrupt makes way for a new one, and then it is renamed, not removed: somebody may want it back.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np

from kubetide.errors import KubetideError
from kubetide.log import get_logger
from kubetide.node.core.series.ring import Key, Ring

log = get_logger("node.history")

MINUTE_MILLIS = 60_000
RETRY_MILLIS = 10_000
"""How long after a failure the file is left alone."""
TELL_AGAIN_MILLIS = 600_000
MOST_SET_ASIDE = 3
"""A disk that damages every file must not be filled with them."""
_LOCK_SECONDS = 0.5
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DROPPED_BITS = 52 - 12
_MASK = np.uint64(0xFFFFFFFFFFFFFFFF << _DROPPED_BITS & 0xFFFFFFFFFFFFFFFF)
_HALF = np.uint64(1 << (_DROPPED_BITS - 1))

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tick (producer TEXT, at INTEGER NOT NULL, interval REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS minute (producer TEXT, at INTEGER NOT NULL, interval REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS tick_at ON tick (producer, at);
CREATE INDEX IF NOT EXISTS minute_at ON minute (at);
"""

Batch = tuple[int, list[tuple[Key, float]]]


def rounded(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    """Return values with 12 bits of mantissa, bytes of equal weight side by side, so that they compress well."""
    bits = values.view(np.uint64)
    finite = np.isfinite(values)
    kept = np.where(finite, (bits + _HALF) & _MASK, bits)
    return kept.view(np.uint8).reshape(-1, 8).T.tobytes()


def restored(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Undo `rounded`, as far as that is possible."""
    columns = np.frombuffer(data, dtype=np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(columns).view(np.float64).reshape(-1)


class HistoryUnusable(KubetideError):
    """The file of samples cannot be used now."""


class History:
    """The file of samples. All calls are short; the largest, compressing a minute, takes a few milliseconds."""

    def __init__(
        self, path: Path, *, retention: timedelta = timedelta(hours=12), max_bytes: int = 100 * 1024 * 1024
    ) -> None:
        self.path = path
        self._retention = int(retention.total_seconds() * 1000)
        self._max_bytes = max_bytes
        self.lost = 0
        """Batches that are in no file."""
        self.problem = ""
        """Why samples are not kept at the moment; empty while they are."""
        self._connection: sqlite3.Connection | None = None
        # Two generations, so that the names of pods that are gone do not stay in memory as long as on disk.
        self._ids: dict[Key, int] = {}
        self._older_ids: dict[Key, int] = {}
        self._minutes: dict[str, int] = {}
        self._retry_at = 0
        self._told = ("", 0)
        with self._watched(0):
            self._open()

    @property
    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            raise HistoryUnusable(self.problem or "not open")
        return self._connection

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = self._connect()
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise
            self._set_aside(error)
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA auto_vacuum=INCREMENTAL")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.executescript(_SCHEMA)
            database.execute("SELECT count(*) FROM series").fetchone()
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _set_aside(self, error: sqlite3.Error) -> None:
        """Rename a file that is proved corrupt, together with its log."""
        self._disconnect()
        names = [f"{self.path}.corrupt-{number}" for number in range(1, MOST_SET_ASIDE + 1)]
        free = next((name for name in names if not Path(name).exists()), None)
        if free is None:
            raise HistoryUnusable(f"corrupt again, and {MOST_SET_ASIDE} corrupt files already lie beside it") from error
        for suffix in ("-wal", "-shm", ""):
            if (part := Path(f"{self.path}{suffix}")).exists():
                part.rename(f"{free}{suffix}")
        log.warning("sample history is corrupt, starting a new one", path=str(self.path), kept=free, error=str(error))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._ids, self._older_ids, self._minutes = {}, {}, {}

    @contextmanager
    def _watched(self, at: int) -> Iterator[None]:
        """Survive what files do: say it once until it changes, leave the file alone for a while, recover."""
        try:
            try:
                yield
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._set_aside(error)
                self._connection = self._connect()
        except (sqlite3.Error, OSError, HistoryUnusable) as error:
            self._retry_at = at + RETRY_MILLIS
            if self.problem != str(error):
                self.problem = str(error)
                self._tell(at)
        else:
            if self.problem and self._told[0] == self.problem:
                log.info("samples kept on disk again", path=str(self.path), lost=self.lost)
            self.problem = ""

    def _tell(self, at: int) -> None:
        """Report what is wrong; a disk that is full time and again, as others make room, is reported now and then."""
        problem, until = self._told
        if problem != self.problem or at >= until:
            self._told = (self.problem, at + TELL_AGAIN_MILLIS)
            log.warning("samples not kept on disk", path=str(self.path), error=self.problem)

    def append(self, producer: str, interval: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        """Store one batch, if the file can take it."""
        self.lost += 1  # until it is stored
        if self.problem and at < self._retry_at:
            return
        with self._watched(at):
            if self._connection is None:
                self._open()
            self._append(producer, interval, at, samples)
            self.lost -= 1

    def _append(self, producer: str, interval: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        """Store one batch; compress the previous minute of the producer when a new one begins."""
        listed = list(samples)
        minute = at // MINUTE_MILLIS
        self._database.execute("BEGIN")
        try:
            if self._minutes.get(producer, minute) != minute:
                self._fold(producer, self._minutes[producer])
            ids = np.array([self._id(key, at) for key, _ in listed], dtype=np.int32)
            values = np.array([value for _, value in listed], dtype=np.float64)
            body = len(listed).to_bytes(4, "little") + ids.tobytes() + values.tobytes()
            self._database.execute("INSERT INTO tick VALUES (?, ?, ?, ?)", (producer, at, interval, body))
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._ids, self._older_ids = {}, {}
            raise
        self._minutes[producer] = minute

    def _id(self, key: Key, at: int) -> int:
        found = self._ids.get(key)
        if found is not None:
            return found
        found = self._older_ids.get(key)
        if found is None:
            identity = msgspec.json.encode(key).decode()
            self._database.execute("INSERT OR IGNORE INTO series (identity, last) VALUES (?, ?)", (identity, at))
            row = self._database.execute("SELECT id FROM series WHERE identity = ?", (identity,)).fetchone()
            found = int(row[0])
        self._ids[key] = found
        return found

    def _fold(self, producer: str, minute: int) -> None:
        start, end = minute * MINUTE_MILLIS, (minute + 1) * MINUTE_MILLIS
        rows = self._database.execute(
            "SELECT at, interval, body FROM tick WHERE producer = ? AND at >= ? AND at < ? ORDER BY at",
            (producer, start, end),
        ).fetchall()
        if not rows:
            return
        heads: list[bytes] = [len(rows).to_bytes(4, "little")]
        ids: list[bytes] = []
        values: list[bytes] = []
        for at, _, body in rows:
            count = int.from_bytes(body[:4], "little")
            heads.append(int(at - start).to_bytes(4, "little") + body[:4])
            ids.append(body[4 : 4 + 4 * count])
            values.append(body[4 + 4 * count :])
        seen = np.unique(np.frombuffer(b"".join(ids), dtype=np.int32)).tolist()
        self._database.executemany("UPDATE series SET last = ? WHERE id = ?", ((end, number) for number in seen))
        joined = rounded(np.frombuffer(b"".join(values), dtype=np.float64))
        packed = zlib.compress(b"".join([*heads, *ids, joined]), 1)
        self._database.execute("INSERT INTO minute VALUES (?, ?, ?, ?)", (producer, start, rows[-1][1], packed))
        self._database.execute("DELETE FROM tick WHERE producer = ? AND at >= ? AND at < ?", (producer, start, end))

    def trim(self, now: int) -> None:
        """Drop what is too old, then the oldest while the file is too large; forget series without samples."""
        if not self.problem:
            with self._watched(now):
                self._trim(now)

    def _trim(self, now: int) -> None:
        self._database.execute("DELETE FROM minute WHERE at < ?", (now - self._retention,))
        self._database.execute("DELETE FROM tick WHERE at < ?", (now - self._retention,))
        forgotten = self._database.execute("DELETE FROM series WHERE last < ?", (now - self._retention,))
        self._older_ids, self._ids = ({} if forgotten.rowcount else self._ids), {}
        while self.size > self._max_bytes:
            oldest = self._database.execute("SELECT min(at) FROM minute").fetchone()[0]
            if oldest is None:
                break
            self._database.execute("DELETE FROM minute WHERE at < ?", (oldest + 10 * MINUTE_MILLIS,))
            self._database.execute("PRAGMA incremental_vacuum")
        self._database.execute("PRAGMA incremental_vacuum")

    @property
    def size(self) -> int:
        """Bytes in use inside the file."""
        pages = self._database.execute("PRAGMA page_count").fetchone()[0]
        free = self._database.execute("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * self._database.execute("PRAGMA page_size").fetchone()[0])

    def batches(self, since: int) -> Iterator[tuple[str, float, Batch]]:
        """Yield (producer, interval, batch) from a moment on, each producer in order of time."""
        identities = {
            int(number): _key(identity)
            for number, identity in self._database.execute("SELECT id, identity FROM series")
        }
        minutes = self._database.execute(
            "SELECT producer, at, interval, body FROM minute WHERE at >= ? ORDER BY at", (since - MINUTE_MILLIS,)
        ).fetchall()
        for producer, start, interval, packed in minutes:
            for offset, ids, values in _unpack(zlib.decompress(packed)):
                if start + offset >= since:
                    yield producer, interval, (start + offset, _samples(identities, ids, values))
        ticks = self._database.execute(
            "SELECT producer, at, interval, body FROM tick WHERE at >= ? ORDER BY at", (since,)
        ).fetchall()
        for producer, at, interval, body in ticks:
            count = int.from_bytes(body[:4], "little")
            ids = np.frombuffer(body[4 : 4 + 4 * count], dtype=np.int32)
            yield producer, interval, (at, _samples(identities, ids, np.frombuffer(body[4 + 4 * count :])))

    def restore(self, ring: Ring, now: int) -> int:
        """Fill an empty ring with what its window still covers; return the number of batches."""
        count = 0
        try:
            for producer, interval, (at, samples) in self.batches(now - int(ring.retention_seconds * 1000)):
                if at <= now:
                    ring.append(producer, interval, at, samples)
                    count += 1
            for producer, at in self._database.execute("SELECT producer, max(at) FROM tick GROUP BY producer"):
                self._minutes[producer] = int(at) // MINUTE_MILLIS
        except (sqlite3.Error, zlib.error, ValueError) as error:
            log.warning("sample history only partly readable", path=str(self.path), error=str(error))
        except HistoryUnusable:
            return 0  # said already
        return count

    def close(self) -> None:
        """Finish the file."""
        self._disconnect()


def _is_corrupt(error: sqlite3.Error) -> bool:
    """Return whether SQLite proved the file corrupt; its error code is missing where the module raised by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT


def _key(identity: str) -> Key:
    kind, properties = msgspec.json.decode(identity)
    return kind, tuple((name, value) for name, value in properties)


def _unpack(data: bytes) -> Iterator[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.int32]], list[float]]]:
    ticks = int.from_bytes(data[:4], "little")
    position = 4
    heads: list[tuple[int, int]] = []
    for _ in range(ticks):
        offset = int.from_bytes(data[position : position + 4], "little")
        count = int.from_bytes(data[position + 4 : position + 8], "little")
        heads.append((offset, count))
        position += 8
    total = sum(count for _, count in heads)
    ids = np.frombuffer(data[position : position + 4 * total], dtype=np.int32)
    values = restored(data[position + 4 * total :])
    start = 0
    for offset, count in heads:
        yield offset, ids[start : start + count], values[start : start + count].tolist()
        start += count


def _samples(
    identities: dict[int, Key], ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]], values: Iterable[float]
) -> list[tuple[Key, float]]:
    return [
        (identities[number], float(value))
        for number, value in zip(ids.tolist(), values, strict=True)
        if number in identities
    ]
