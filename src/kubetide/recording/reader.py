"""Reads a recording: opened in milliseconds, decoded a block and a day at a time.

The file is mapped into memory; opening reads the manifest and the footers of the tables. What cannot be read is one
error that names the file: not a recording, cut off, another version, a table that is damaged. Footers and pages are
compared with their checksums before they are decoded: Arrow ends the process on some damage, and a flipped bit in a
page could otherwise be a sample that nobody took.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.arrow import arrow, parquet
from kubetide.recording.core.layout import ABSENT, Grid, Rows, grid
from kubetide.recording.format import CHUNK_SECONDS, MANIFEST, TABLES, Manifest, footer_checksum, read_manifest
from kubetide.stats.buckets import Floats, Ints

_HEADER = 30
"""Bytes of a member's header in the archive, before its name and extra field."""


@dataclass(frozen=True, slots=True)
class Containers:
    """Who the containers are, by number."""

    block: Ints
    namespace: tuple[str, ...]
    kind: tuple[str, ...]
    workload: tuple[str, ...]
    pod: tuple[str, ...]
    container: tuple[str, ...]
    since: Ints
    """Microseconds since when there is one, `ABSENT` where that is its first sample."""

    def __len__(self) -> int:
        return int(self.block.size)

    def unit_of(self, container: int) -> str:
        """Return what is sized together: the container of that name in all pods of a workload."""
        who = self.namespace, self.kind, self.workload, self.container
        return "/".join(part[container] for part in who)

    def service_of(self, container: int) -> str:
        """Return what is scaled together: NAMESPACE/NAME of the workload."""
        return f"{self.namespace[container]}/{self.workload[container]}"


class Recording:
    """A recording on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._map()
        self._members = self._find_members()
        about = self._member(MANIFEST).to_pybytes()
        if zlib.crc32(about) != self._manifest_checksum:
            raise InvalidInput("is damaged: its checksum is another", subject=str(path), field=MANIFEST)
        self.manifest: Manifest = read_manifest(about, str(path))
        self._tables: dict[str, Any] = {}

    def _map(self) -> Any:
        pa = arrow()
        try:
            return pa.memory_map(str(self.path), "r").read_buffer()
        except FileNotFoundError as error:
            raise InvalidInput("there is no such file", subject=str(self.path)) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise InvalidInput(f"cannot be read: {error}", subject=str(self.path)) from error

    def _find_members(self) -> dict[str, tuple[int, int]]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                listed = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InvalidInput("is not a recording, or was cut off", subject=str(self.path)) from error
        found = {}
        for each in listed:
            if each.filename == MANIFEST:
                self._manifest_checksum = each.CRC
            if each.compress_type != zipfile.ZIP_STORED:
                raise InvalidInput("a member is compressed", subject=str(self.path), field=each.filename)
            if each.header_offset + _HEADER > self._file.size:
                raise InvalidInput("is cut off", subject=str(self.path), field=each.filename)
            header = self._file.slice(each.header_offset, _HEADER).to_pybytes()
            lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            found[each.filename] = (each.header_offset + _HEADER + lengths, each.file_size)
        if MANIFEST not in found:
            raise InvalidInput(f"has no {MANIFEST}: it is not a recording", subject=str(self.path))
        return found

    def _member(self, name: str) -> Any:
        start, length = self._members[name]
        if start + length > self._file.size:
            raise InvalidInput("is cut off", subject=str(self.path), field=name)
        return self._file.slice(start, length)

    def _parquet(self, table: str) -> Any:
        """Return the Parquet file of a table; None where the recording has none."""
        if table not in self._tables:
            name = f"{table}.parquet"
            self._tables[table] = self._open(table, name) if name in self._members else None
        return self._tables[table]

    def _open(self, table: str, name: str) -> Any:
        content = self._member(name)
        expected = self.manifest.footers.get(table)
        if expected is not None and footer_checksum(memoryview(content)) != expected:
            raise InvalidInput("is damaged: the checksum of its footer is another", subject=str(self.path), field=name)
        try:
            return parquet().ParquetFile(arrow().BufferReader(content), page_checksum_verification=True)
        except (OSError, arrow().ArrowException) as error:
            raise InvalidInput(f"is damaged: {error}", subject=str(self.path), field=name) from error

    def rows(self, table: str) -> Mapping[str, Any]:
        """Return a whole small table as lists by column, times in microseconds; what is missing is null."""
        found = self._parquet(table)
        if found is None:
            return {name: [] for name in TABLES[table]}
        content = self._decoded(table, lambda: found.read())
        columns: dict[str, Any] = {}
        for name, kind in TABLES[table].items():
            if name not in content.column_names:
                columns[name] = [None] * content.num_rows
                continue
            column = content.column(name)
            columns[name] = (column.cast(arrow().int64()) if kind == "time" else column).to_pylist()
        return columns

    def _decoded(self, table: str, read: Any) -> Any:
        try:
            return read()
        except (OSError, arrow().ArrowException) as error:
            raise InvalidInput(f"is damaged: {error}", subject=str(self.path), field=f"{table}.parquet") from error

    # ------------------------------------------------------------------ usage

    @cached_property
    def containers(self) -> Containers:
        """Return who the containers are."""
        columns = self.rows("containers")
        if columns["container_id"] != list(range(len(columns["container_id"]))):
            raise InvalidInput("containers are not numbered from 0", subject=str(self.path), field="containers")
        texts = [
            tuple(text or "" for text in columns[name])
            for name in ("namespace", "kind", "workload", "pod", "container")
        ]
        if None in columns["block"]:
            raise InvalidInput("a container has no block", subject=str(self.path), field="containers.parquet")
        since = np.array([ABSENT if at is None else at for at in columns["since"]], dtype=np.int64)
        namespaces, kinds, workloads, pods, containers = texts
        blocks = np.array(columns["block"], dtype=np.int64)
        return Containers(blocks, namespaces, kinds, workloads, pods, containers, since)

    @cached_property
    def _groups(self) -> list[tuple[int, int, int, int]]:
        """Return the row groups of usage: number, block, first and last microsecond."""
        found = self._parquet("usage")
        if found is None:
            return []
        meta, groups = found.metadata, []
        names = [meta.schema.column(place).name for place in range(meta.num_columns)]
        if not {"container_id", "time"} <= set(names):
            raise self._unusable("has no container_id or no time")
        who, when = names.index("container_id"), names.index("time")
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            if not group.num_rows:
                continue
            times, ids = group.column(when).statistics, group.column(who).statistics
            if any(each is None or not each.has_min_max for each in (times, ids)):
                raise self._unusable("has row groups without statistics of container_id and time")
            if not 0 <= ids.min <= ids.max < len(self.containers):
                raise self._unusable(f"has container_id {ids.max}, containers has {len(self.containers)} rows")
            first, last = (_micros(each) for each in (times.min, times.max))
            groups.append((number, int(self.containers.block[ids.min]), first, last))
        return groups

    def _unusable(self, why: str) -> InvalidInput:
        return InvalidInput(why, subject=str(self.path), field="usage.parquet")

    @property
    def blocks(self) -> list[int]:
        """Return the blocks that have usage."""
        return sorted({block for _, block, _, _ in self._groups})

    def samples(self) -> Iterator[tuple[Rows, Ints, Floats]]:
        """Yield all usage as it is stored: rows, when each was seen, and the window of each in seconds."""
        for number, *_ in self._groups:
            yield self._read_group(number, seen=True)

    def _read_group(self, number: int, *, seen: bool) -> tuple[Rows, Ints, Floats]:
        found = self._parquet("usage")
        known = set(found.schema_arrow.names)
        wanted = [
            name for name in TABLES["usage"] if name in known and (seen or name not in ("seen", "window_seconds"))
        ]
        content = self._decoded("usage", lambda: found.read_row_group(number, columns=wanted, use_threads=False))
        size = content.num_rows

        def whole(name: str) -> Ints:
            if name not in content.column_names:
                return np.full(size, ABSENT)
            column = content.column(name).combine_chunks()
            if TABLES["usage"][name] == "time":
                column = column.cast(arrow().int64())
            if column.null_count:
                column = column.fill_null(ABSENT)
            values: Ints = column.to_numpy(zero_copy_only=False)
            return values

        throttled = None
        if "throttled" in content.column_names and content.column("throttled").null_count < size:
            throttled = content.column("throttled").to_numpy().astype(np.float64)
        rows = Rows(whole("container_id"), whole("time"), whole("cpu_micros"), whole("memory_bytes"), throttled)
        if not seen:
            return rows, np.zeros(0, dtype=np.int64), np.zeros(0)
        windows = content.column("window_seconds").to_numpy() if "window_seconds" in known else np.full(size, np.nan)
        return rows, whole("seen"), windows.astype(np.float64)

    def grids(self, block: int, *, interval_seconds: int | None = None) -> Iterator[Grid]:
        """Yield a block day by day as intervals by containers, oldest first, from the recording's start."""
        interval = interval_seconds or self.manifest.interval_seconds
        members = np.flatnonzero(self.containers.block == block)
        mine = [group for group in self._groups if group[1] == block]
        start = self.manifest.start
        chunks = (self.manifest.end - start) // CHUNK_SECONDS + 1
        for chunk in range(chunks):
            begins = start + chunk * CHUNK_SECONDS
            steps = min(CHUNK_SECONDS, self.manifest.end - begins + interval) // interval
            limits = begins * 1_000_000, (begins + steps * interval) * 1_000_000
            parts = [
                self._read_group(number, seen=False)[0]
                for number, _, first, last in mine
                if first < limits[1] and last >= limits[0]
            ]
            yield grid(_joined(parts), members, start_seconds=begins, steps=steps, interval_seconds=interval)

    def close(self) -> None:
        """Let go of the file."""
        for each in self._tables.values():
            if each is not None:
                each.close()


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Rows(none, none, none, none)
    ids, times, cpu, memory = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("containers", "times", "cpu_micros", "memory_bytes")
    )
    throttled = None
    if any(part.throttled is not None for part in parts):
        throttled = np.concatenate(
            [np.full(len(part), np.nan) if part.throttled is None else part.throttled for part in parts]
        )
    return Rows(ids, times, cpu, memory, throttled)


def _micros(at: Any) -> int:
    """Return a time of Parquet's statistics in microseconds."""
    seconds = int(at.replace(microsecond=0).timestamp())
    return seconds * 1_000_000 + int(at.microsecond)
