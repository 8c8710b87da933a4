"""Imports of tables: CSV files, and packs of traces (`index.json` and one `.npz` per data set).

Nothing is filled in: a gap stays a gap, of two rows for one time the later counts and the other is noted, and where a
counter goes back no rate is made. What cannot be read is one error with file and line.
"""

import csv
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import ABSENT, period_of, rates
from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.format import CHUNK_SECONDS, Manifest
from kubetide.recording.writer import LAST_SECOND, MOST_CPU_MICROS, Writer
from kubetide.stats.buckets import Floats, Ints

_SECOND = 1_000_000
_LONGEST_DAYS = 3653
"""A CSV file of more than ten years has a wrong time in it; every empty day of it would be replayed."""
_MOST = {
    "cpu_cores": MOST_CPU_MICROS / 1e6, "cpu_request_cores": 1e9, "cpu_limit_cores": 1e9, "throttled": 1.0,
    "memory_bytes": 2.0**62, "memory_request_bytes": 2.0**62, "memory_limit_bytes": 2.0**62,
}  # fmt: skip
DEMAND = "demand_cores"
_NAMES = frozenset({"namespace", "kind", "workload", "pod", "container"})
_COLUMNS = _NAMES | frozenset(
    {
        "time", "cpu_cores", "cpu_seconds_total", "memory_bytes",
        "cpu_request_cores", "memory_request_bytes", "cpu_limit_cores", "memory_limit_bytes", "throttled",
    }
)  # fmt: skip


# ---------------------------------------------------------------------- CSV


def import_csv(source: Path, target: Path, *, interval_seconds: int, pseudonyms: Pseudonyms | None = None) -> None:
    """Write a recording from a CSV file: one row per container and time, columns by name."""
    rows = _read_csv(source)
    if not rows:
        raise InvalidInput("has no rows", subject=str(source))
    times = [row["time"] for each in rows.values() for row in each]
    start, end = int(min(times)) // interval_seconds * interval_seconds, int(max(times))
    if end - start > _LONGEST_DAYS * 86400:
        first, last = (datetime.fromtimestamp(at, UTC).date() for at in (start, end))
        raise InvalidInput(f"goes from {first} to {last}: is a time wrong?", subject=str(source), field="time")
    manifest = Manifest(
        source="csv",
        interval_seconds=interval_seconds,
        period_seconds=period_of(end - start + interval_seconds, interval_seconds),
        start=start,
    )
    with Writer(target, manifest, pseudonyms=pseudonyms) as writer:
        series = []
        for key, listed in sorted(rows.items()):
            container = writer.container(*key)
            listed.sort(key=lambda row: row["time"])
            _write_sizes(writer, container, listed)
            found = _samples(listed, writer)
            places = (found[0] // _SECOND - start) // interval_seconds
            # A grid keeps the last one of each interval.
            writer.note("samples that share an interval with a later one", int((np.diff(places) == 0).sum()))
            series.append((container, *found))
        _write_by_chunk(writer, series, start)


def _read_csv(source: Path) -> dict[tuple[str, str, str, str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str, str, str, str], list[dict[str, Any]]] = {}
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = set(reader.fieldnames or ())
            if not {"time", "container"} <= names:
                raise InvalidInput("needs the columns time and container", subject=str(source), field="header")
            if len(names) < len(reader.fieldnames or ()):
                raise InvalidInput("has a column twice", subject=str(source), field="header")
            if unknown := sorted(names - _COLUMNS):
                raise InvalidInput(f"has unknown columns {', '.join(unknown)}", subject=str(source), field="header")
            for number, row in enumerate(reader, 2):
                where = f"{source}:{number}"
                if None in row or None in row.values():
                    raise InvalidInput("has another number of fields than the header", subject=where)
                for name in _NAMES & names:
                    if "/" in row[name]:
                        raise InvalidInput(f"{row[name]!r} has a slash; no name may", subject=where, field=name)
                container = row["container"]
                if not container:
                    raise InvalidInput("is empty", subject=where, field="container")
                workload = row.get("workload") or container
                key = (row.get("namespace") or "default", row.get("kind") or "Deployment", workload)
                parsed = {
                    name: _amount(text, where, name)
                    for name, text in row.items()
                    if name not in _NAMES and name != "time"
                }
                parsed["time"] = _time(row["time"], where)
                found.setdefault((*key, row.get("pod") or workload, container), []).append(parsed)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", subject=str(source)) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidInput(f"is not CSV: {error}", subject=str(source)) from error
    return found


def _time(text: str, where: str) -> float:
    """Return seconds: a number, or a date with its time zone (UTC where there is none)."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise InvalidInput(f"{text!r} is neither seconds nor a date", subject=where, field="time") from error
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    if not 0.0 <= seconds < LAST_SECOND + 1:
        raise InvalidInput(f"{text!r} is not in the years 1970 to 9999", subject=where, field="time")
    return seconds


def _amount(text: str, where: str, field: str) -> float:
    """Return a number; an empty field is no sample."""
    if not text.strip():
        return float("nan")
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a number", subject=where, field=field) from error
    if value < 0 or value in (float("inf"), float("-inf")):
        raise InvalidInput(f"{text} is negative or not finite", subject=where, field=field)
    if value > _MOST.get(field, float("inf")):
        raise InvalidInput(f"{text} is above {_MOST[field]:.4g}", subject=where, field=field)
    return value


def _samples(rows: list[dict[str, Any]], writer: Writer) -> tuple[Ints, Ints, Ints, Floats]:
    """Return times, microcores, bytes and throttling of one container."""
    times = np.array([round(row["time"] * _SECOND) for row in rows], dtype=np.int64)
    last = np.r_[times[1:] != times[:-1], True]
    writer.note("duplicate samples", int((~last).sum()))
    cpu = np.array([row.get("cpu_cores", np.nan) for row in rows])
    counters = np.array([row.get("cpu_seconds_total", np.nan) for row in rows])
    if not np.isnan(counters).all():
        known = last & ~np.isnan(counters)
        at, rate = rates(times[known], counters[known])
        writer.note("counters that went back", int(known.sum()) - 1 - at.size)
        cpu = np.where(np.isin(times, at), np.nan, cpu)
        cpu[np.searchsorted(times, at, side="right") - 1] = rate
    memory = np.array([row.get("memory_bytes", np.nan) for row in rows])
    throttled = np.array([row.get("throttled", np.nan) for row in rows])
    return times[last], _whole(cpu[last] * 1e6), _whole(memory[last]), throttled[last]


def _whole(values: Floats) -> Ints:
    """Return amounts rounded up, as quantities are; `ABSENT` for none."""
    return np.where(np.isnan(values), ABSENT, np.ceil(np.nan_to_num(values))).astype(np.int64)


def _write_sizes(writer: Writer, container: int, rows: list[dict[str, Any]]) -> None:
    """Write requests and limits where they change."""
    before: tuple[int | None, ...] = (None, None, None, None)
    for row in rows:
        now = tuple(
            None if np.isnan(row.get(name, np.nan)) else round(row[name] * scale)
            for name, scale in (
                ("cpu_request_cores", 1000.0),
                ("memory_request_bytes", 1.0),
                ("cpu_limit_cores", 1000.0),
                ("memory_limit_bytes", 1.0),
            )
        )
        if now != before and any(each is not None for each in now):
            write_size(writer, container, round(row["time"] * _SECOND), *now)
            before = now


def write_size(
    writer: Writer,
    container: int,
    at: int,
    cpu: int | None,
    memory: int | None,
    cpu_limit: int | None,
    memory_limit: int | None,
) -> None:
    """Write what a container requests from a time on."""
    writer.row(
        "sizes",
        container_id=container,
        time=at,
        cpu_request_millis=cpu,
        memory_request_bytes=memory,
        cpu_limit_millis=cpu_limit,
        memory_limit_bytes=memory_limit,
    )


def _write_by_chunk(writer: Writer, series: list[tuple[int, Ints, Ints, Ints, Floats]], start: int) -> None:
    """Write usage a day at a time, all containers of a day together."""
    if not series:
        return
    end = max(int(times[-1]) for _, times, *_ in series)
    for begins in range(start * _SECOND, end + 1, CHUNK_SECONDS * _SECOND):
        parts: list[tuple[Any, ...]] = []
        for container, times, cpu, memory, throttled in series:
            low, high = np.searchsorted(times, (begins, begins + CHUNK_SECONDS * _SECOND))
            if high > low:
                which = slice(low, high)
                ids = np.full(high - low, container)
                parts.append((ids, times[which], cpu[which], memory[which], throttled[which]))
        if parts:
            ids, at, cpu, memory, throttled = (np.concatenate(each) for each in zip(*parts, strict=True))
            writer.usage(ids, at, cpu, memory, throttled=throttled)


# ---------------------------------------------------------------------- packs of traces


def import_pack(folder: Path, dataset: str, target: Path, *, pseudonyms: Pseudonyms | None = None) -> None:
    """Write a recording from one data set of a pack."""
    about = _about(folder, dataset)
    arrays = _arrays(folder / about["file"], about)
    interval = int(about["interval_seconds"])
    starts = arrays["starts"].astype(np.int64)
    manifest = Manifest(
        source="pack",
        interval_seconds=interval,
        period_seconds=int(about.get("period_seconds", 86400)),
        warmup_periods=int(about.get("warmup_periods", 0)),
        start=int(starts.min()),
    )
    with Writer(target, manifest, pseudonyms=pseudonyms) as writer:
        if about["kind"] == "load":
            _write_load(writer, about, arrays, starts, interval)
            return
        series = []
        for row, name in enumerate(arrays["names"].tolist()):
            since = int(starts[row]) * _SECOND
            container = writer.container("default", "Deployment", str(name), str(name), "app", since=since)
            series.append((container, *_pack_samples(about, arrays, row, int(starts[row]), interval)))
            _write_provisioned(writer, about, arrays, row, container, int(starts[row]))
        _write_by_chunk(writer, series, int(starts.min()))


def _about(folder: Path, dataset: str) -> dict[str, Any]:
    path = folder / "index.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        if listed["format"] != 1:
            raise InvalidInput(f"is format {listed['format']}, only 1 is known", subject=str(path), field="format")
        found = {each["name"]: each for each in listed["datasets"]}
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", subject=str(path)) from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidInput(f"is not the index of a pack: {error!r}", subject=str(path)) from error
    if dataset not in found:
        raise InvalidInput(f"{dataset!r} is not one of {', '.join(sorted(found))}", subject=str(path))
    about: dict[str, Any] = found[dataset]
    return about


def _arrays(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    try:
        with path.open("rb") as file, np.load(file) as content:
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InvalidInput(f"is not a data set, or was cut off: {error}", subject=str(path)) from error
    needed = ("names", "starts", "load") if about["kind"] == "load" else ("names", "starts")
    for name in needed:
        if name not in arrays:
            raise InvalidInput("is missing", subject=str(path), field=name)
    return arrays


def _pack_samples(
    about: dict[str, Any], arrays: dict[str, Any], row: int, start: int, interval: int
) -> tuple[Ints, Ints, Ints, Floats]:
    stored = {name: arrays[name][row].astype(np.int64) for name in ("cpu", "memory") if name in arrays}
    steps = max(each.size for each in stored.values())
    nothing = np.full(steps, ABSENT)
    cpu, memory = stored.get("cpu", nothing), stored.get("memory", nothing)
    there = np.flatnonzero((cpu >= 0) | (memory >= 0))
    micros = np.where(cpu < 0, ABSENT, np.rint(cpu * (float(about.get("cpu_unit", 1.0)) * 1e6))).astype(np.int64)
    amounts = np.where(memory < 0, ABSENT, np.rint(memory * float(about.get("memory_unit", 1.0)))).astype(np.int64)
    times = (start + there * interval) * _SECOND
    return times, np.minimum(micros[there], MOST_CPU_MICROS), amounts[there], np.full(there.size, np.nan)


def _write_provisioned(
    writer: Writer, about: dict[str, Any], arrays: dict[str, Any], row: int, container: int, start: int
) -> None:
    if "cpu_provisioned" in arrays or "memory_provisioned" in arrays:
        amounts = [
            round(float(arrays[name][row]) * float(about.get(unit, 1.0)) * scale) if name in arrays else None
            for name, unit, scale in (
                ("cpu_provisioned", "cpu_unit", 1000.0),
                ("memory_provisioned", "memory_unit", 1.0),
            )
        ]
        write_size(writer, container, start * _SECOND, amounts[0], amounts[1], None, amounts[1])


def _write_load(writer: Writer, about: dict[str, Any], arrays: dict[str, Any], starts: Ints, interval: int) -> None:
    for row, name in enumerate(arrays["names"].tolist()):
        # A stored count of 1 keeps so many cores busy.
        cores = float(about["cores_per_unit"][str(name)])
        for at, value in _present(arrays["load"][row]):
            time = (int(starts[row]) + at * interval) * _SECOND
            writer.row("load", namespace="default", workload=str(name), metric=DEMAND, time=time, value=value * cores)


def _present(stored: Any) -> Iterator[tuple[int, float]]:
    for at in np.flatnonzero(stored >= 0).tolist():
        yield at, float(stored[at])
