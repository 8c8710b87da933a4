"""Writes a recording: rows as they come, in bounded memory, and a file only when all of it is there.

Tables grow as Parquet files in a directory beside the target and are joined at the end, so that an interrupted
recording never looks like a whole one. Usage is cut into row groups: one block of containers for at most a day.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from kubetide import __version__
from kubetide.errors import InvalidInput
from kubetide.recording.arrow import arrow, parquet, schema_of
from kubetide.recording.core.layout import ABSENT, Blocks
from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.format import BLOCK_CONTAINERS, CHUNK_SECONDS, MANIFEST, TABLES, Gap, Manifest, footer_checksum

_SECOND = 1_000_000
_MOST_ROWS = 4_000_000
"""Samples held before they are written, whatever their time."""
_SMALL_ROWS = 20_000
MOST_CPU_MICROS = 2**31 - 1
LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""
_NAMES = frozenset({"namespace", "workload", "pod", "container", "name", "node"})
"""Columns whose texts are hidden in an anonymized recording."""
_PLAIN = frozenset({"object", "decision"})
Container = tuple[str, str, str, str, str]
"""Namespace, kind, workload, pod, container."""


class Writer:
    """A recording that is being written; use it as a context manager."""

    def __init__(self, path: Path, manifest: Manifest, *, pseudonyms: Pseudonyms | None = None) -> None:
        self._path = path
        self._pseudonyms = pseudonyms
        self._manifest = manifest
        arrow()
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        except OSError as error:
            raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(path)) from error
        self._writers: dict[str, Any] = {}
        self._rows: dict[str, int] = {}
        self._small: dict[str, list[Mapping[str, Any]]] = {name: [] for name in TABLES if name != "usage"}
        self._blocks = Blocks(BLOCK_CONTAINERS)
        self._ids: dict[Container, int] = {}
        self._block_of: list[int] = []
        self._usage: list[tuple[npt.NDArray[Any], ...]] = []
        self._held = 0
        self._chunk = 0
        self._gaps: list[Gap] = list(manifest.gaps)
        self._notes: dict[str, int] = dict(manifest.notes)
        self._first: int | None = None
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with self._on_disk():
                    self._finish()
        finally:
            for each in self._writers.values():
                # What cannot be closed on a full disk has been told already, and goes anyway.
                with suppress(OSError):
                    each.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        """Name the file where the disk is full or gone."""
        try:
            yield
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise InvalidInput(f"cannot be written: {why}", subject=str(self._path)) from error

    def counted_by(self, period_seconds: int) -> None:
        """Let replays count another period than was planned."""
        self._manifest = msgspec.structs.replace(self._manifest, period_seconds=period_seconds)

    # ------------------------------------------------------------------ rows

    def container(
        self, namespace: str, kind: str, workload: str, pod: str, container: str, *, since: int | None = None
    ) -> int:
        """Return the number of a container, adding it if it is new; `since` where that is not its first sample."""
        key = (namespace, kind, workload, pod, container)
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self._ids)
            block = self._blocks.of((namespace, kind, workload))
            self._block_of.append(block)
            names = ("namespace", "kind", "workload", "pod", "container")
            who = dict(zip(names, key, strict=True))
            self.row("containers", container_id=number, block=block, since=since, **who)
        return number

    def usage(
        self,
        containers: npt.ArrayLike,
        times: npt.ArrayLike,
        cpu_micros: npt.ArrayLike,
        memory_bytes: npt.ArrayLike,
        *,
        throttled: npt.ArrayLike | None = None,
        windows: npt.ArrayLike | None = None,
        seen: npt.ArrayLike | None = None,
    ) -> None:
        """Add samples: times in microseconds; `ABSENT` where an amount is not known."""
        at = np.asarray(containers, dtype=np.int32)
        time = np.broadcast_to(np.asarray(times, dtype=np.int64), at.shape)
        cpu = np.broadcast_to(np.asarray(cpu_micros, dtype=np.int64), at.shape)
        memory = np.broadcast_to(np.asarray(memory_bytes, dtype=np.int64), at.shape)
        if not at.size:
            return
        if int(cpu.max()) > MOST_CPU_MICROS:
            raise InvalidInput("a sample is above 2147 cores", subject=str(self._path), field="cpu_micros")
        shares = np.full(at.shape, np.nan, dtype=np.float32) if throttled is None else np.asarray(throttled, np.float32)
        spans = np.full(at.shape, np.nan, dtype=np.float32) if windows is None else np.asarray(windows, np.float32)
        first_seen = (
            np.full(at.shape, ABSENT) if seen is None else np.broadcast_to(np.asarray(seen, np.int64), at.shape)
        )
        newest, oldest = int(time.max()) // _SECOND, int(time.min()) // _SECOND
        if oldest < 0 or newest > LAST_SECOND:
            raise InvalidInput("a sample is not in the years 1970 to 9999", subject=str(self._path), field="time")
        self._lasts(oldest, newest)
        chunk = (oldest - self._manifest.start) // CHUNK_SECONDS
        if chunk > self._chunk:
            self._flush_usage()
            self._chunk = chunk
        self._usage.append((at, time, cpu.astype(np.int32), memory, shares, spans, first_seen))
        self._held += at.size
        if self._held >= _MOST_ROWS:
            self._flush_usage()

    def row(self, table: str, **values: Any) -> None:
        """Add a row to any table but usage: times in microseconds, objects and decisions as plain values."""
        rows = self._small[table]
        if table == "load":
            self._lasts(values["time"] // _SECOND, values["time"] // _SECOND)
        if self._pseudonyms is not None:
            values = {name: self._hidden(name, value) for name, value in values.items()}
        rows.append({name: _text(value) if name in _PLAIN else value for name, value in values.items()})
        if len(rows) >= _SMALL_ROWS:
            self._flush(table)

    def _lasts(self, oldest: int, newest: int) -> None:
        """Note from when until when there is anything."""
        self._first = oldest if self._first is None else min(self._first, oldest)
        self._last = max(self._last, newest)

    def _hidden(self, name: str, value: Any) -> Any:
        assert self._pseudonyms is not None
        if name in _PLAIN:
            return self._pseudonyms.object(value)
        return self._pseudonyms.name(value) if name in _NAMES else value

    def gap(self, start: int, end: int, reason: str) -> None:
        """Record that nothing is known of a stretch."""
        self._gaps.append(Gap(start=start, end=end, reason=reason))

    def note(self, reason: str, count: int = 1) -> None:
        """Count what was left out."""
        if count:
            self._notes[reason] = self._notes.get(reason, 0) + count

    # ------------------------------------------------------------------ files

    def _flush_usage(self) -> None:
        if not self._usage:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._usage, strict=True)]
        self._usage, self._held = [], 0
        at, time = columns[0], columns[1]
        block = np.array(self._block_of, dtype=np.int32)[at]
        chunk = (time // _SECOND - self._manifest.start) // CHUNK_SECONDS
        order = np.lexsort((time, at, block, chunk))
        cuts = np.flatnonzero((np.diff(block[order]) != 0) | (np.diff(chunk[order]) != 0)) + 1
        for part in np.split(order, cuts):
            self._write("usage", self._usage_table([column[part] for column in columns]))

    def _usage_table(self, columns: list[npt.NDArray[Any]]) -> Any:
        pa, schema = arrow(), schema_of("usage")
        at, time, cpu, memory, throttled, spans, seen = columns
        return pa.Table.from_arrays(
            [
                pa.array(at),
                pa.array(time).cast(schema.field("time").type),
                pa.array(cpu, mask=cpu < 0),
                pa.array(memory, mask=memory < 0),
                pa.array(throttled, mask=np.isnan(throttled)),
                pa.array(spans, mask=np.isnan(spans)),
                pa.array(seen, mask=seen < 0).cast(schema.field("seen").type),
            ],
            schema=schema,
        )

    def _flush(self, table: str) -> None:
        rows, self._small[table] = self._small[table], []
        if not rows:
            return
        schema = schema_of(table)
        columns = [
            arrow().array([row.get(name) for row in rows], type=_plain(kind)) for name, kind in TABLES[table].items()
        ]
        arrays = [each.cast(schema.field(place).type) for place, each in enumerate(columns)]
        self._write(table, arrow().Table.from_arrays(arrays, schema=schema))

    def _write(self, table: str, content: Any) -> None:
        with self._on_disk():
            if table not in self._writers:
                dictionary = [name for name, kind in TABLES[table].items() if kind == "string" or name.endswith("_id")]
                if table == "usage":
                    dictionary.append("time")
                self._writers[table] = parquet().ParquetWriter(
                    self._folder / f"{table}.parquet",
                    schema_of(table),
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=dictionary,
                    write_page_checksum=True,
                )
            self._writers[table].write_table(content, row_group_size=max(1, content.num_rows))
        self._rows[table] = self._rows.get(table, 0) + content.num_rows

    def _finish(self) -> None:
        for table in self._small:
            self._flush(table)
        self._flush_usage()
        for table in TABLES:
            if table not in self._writers:
                self._write(table, schema_of(table).empty_table())
        for each in self._writers.values():
            each.close()
        footers = {}
        for table in TABLES:
            with arrow().memory_map(str(self._folder / f"{table}.parquet"), "r") as file:
                footers[table] = footer_checksum(memoryview(file.read_buffer())) or 0
        start = self._manifest.start or self._first or 0
        manifest = msgspec.structs.replace(
            self._manifest,
            writer=f"kubetide {__version__}",
            anonymized=self._pseudonyms is not None,
            start=start,
            # Live, the first samples are older than the recording.
            end=max(self._manifest.end, self._last, start),
            rows=self._rows,
            gaps=self._gaps,
            notes=self._notes,
            footers=footers,
        )
        whole = self._folder / "recording"
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
            for table in TABLES:
                archive.write(self._folder / f"{table}.parquet", f"{table}.parquet")
        whole.replace(self._path)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _plain(kind: str) -> Any:
    return arrow().int64() if kind == "time" else getattr(arrow(), kind)()
