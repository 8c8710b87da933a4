"""Usage of some containers in memory, to be replayed again and again: a notebook's arrays, or part of a recording.

Whoever tries many policies on one workload reads it once and replays it in milliseconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import Grid
from kubetide.recording.format import CHUNK_SECONDS
from kubetide.recording.reader import Recording
from kubetide.stats.buckets import Floats, Ints

Size = tuple[int, float, float, float]
"""From which second on, cores, bytes, memory limit; NaN for none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Samples by interval and container; NaN where there is none."""

    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    workloads: Sequence[str]
    """Of each container: NAMESPACE/KIND/NAME/CONTAINER, or any other name. Equal ones are sized together."""
    start_seconds: int
    interval_seconds: int = 300
    throttled: Floats | None = None
    """Share of each interval in which the container was throttled."""
    sizes: Mapping[int, Sequence[Size]] = field(default_factory=dict)
    """By container: the requests and limits that it had, oldest first."""
    oom_kills: Mapping[int, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """By container: second, and the bytes that it had requested, 0 where that is not known."""
    period_seconds: int = 86400
    warmup_periods: int = 1

    def __post_init__(self) -> None:
        for name in ("memory", "throttled"):
            shape = None if getattr(self, name) is None else getattr(self, name).shape
            if shape is not None and shape != self.cpu.shape:
                raise InvalidInput(f"has the shape {shape}, cpu {self.cpu.shape}", subject="samples", field=name)
        if self.cpu.ndim != 2 or self.cpu.shape[1] != len(self.workloads):
            raise InvalidInput("needs one name per column of cpu", subject="samples", field="workloads")

    def grids(self, *, interval_seconds: int) -> Iterator[Grid]:
        """Yield the samples day by day."""
        if interval_seconds != self.interval_seconds:
            raise InvalidInput(f"samples are {self.interval_seconds} s apart", subject="samples", field="interval")
        steps = CHUNK_SECONDS // interval_seconds
        everyone: Ints = np.arange(len(self.workloads))
        for at in range(0, len(self.cpu), steps):
            part = slice(at, at + steps)
            throttled = None if self.throttled is None else self.throttled[part]
            start = self.start_seconds + at * interval_seconds
            yield Grid(everyone, start, self.cpu[part], self.memory[part], throttled, 0)


def read_samples(path: Path, workloads: Sequence[str]) -> Samples:
    """Return some workloads of a recording, as `Outcome.workloads` names them: NAMESPACE/KIND/NAME/CONTAINER."""
    recording = Recording(path)
    who, manifest = recording.containers, recording.manifest
    wanted = set(workloads)
    members = np.array([at for at in range(len(who)) if who.unit_of(at) in wanted], dtype=np.int64)
    if missing := wanted - {who.unit_of(at) for at in members.tolist()}:
        raise InvalidInput(f"has no workload {min(missing)}", subject=str(path))
    columns: list[Ints] = []
    parts: dict[str, list[Floats]] = {"cpu": [], "memory": [], "throttled": []}
    for block in np.unique(who.block[members]).tolist():
        everyone = np.flatnonzero(who.block == block)
        here = np.flatnonzero(np.isin(everyone, members))
        columns.append(everyone[here])
        grids = list(recording.grids(block))
        parts["cpu"].append(np.concatenate([each.cpu[:, here] for each in grids]))
        parts["memory"].append(np.concatenate([each.memory[:, here] for each in grids]))
        seen = [np.full_like(each.cpu, np.nan) if each.throttled is None else each.throttled for each in grids]
        parts["throttled"].append(np.concatenate([each[:, here] for each in seen]))
    order = np.concatenate(columns)
    cpu, memory, throttled = (np.concatenate(each, axis=1) for each in parts.values())
    sizes, oom_kills = recorded_events(recording, order)
    return Samples(
        cpu=cpu,
        memory=memory,
        workloads=tuple(who.unit_of(at) for at in order.tolist()),
        start_seconds=manifest.start,
        interval_seconds=manifest.interval_seconds,
        throttled=None if np.isnan(throttled).all() else throttled,
        sizes=sizes,
        oom_kills=oom_kills,
        period_seconds=manifest.period_seconds,
        warmup_periods=max(1, manifest.warmup_periods),
    )


def recorded_events(
    recording: Recording, members: Ints
) -> tuple[dict[int, list[Size]], dict[int, list[tuple[int, float]]]]:
    """Return sizes and OOM kills of some containers of a recording, by their place among them, oldest first."""
    column = {member: place for place, member in enumerate(members.tolist())}
    sizes: dict[int, list[Size]] = {}
    rows = recording.rows("sizes")
    names = ("container_id", "time", "cpu_request_millis", "memory_request_bytes", "memory_limit_bytes")
    for member, time, cpu, memory, limit in zip(*(rows[name] for name in names), strict=True):
        if member in column:
            size = (time // 1_000_000, _number(cpu, 1000.0), _number(memory), _number(limit))
            sizes.setdefault(column[member], []).append(size)
    kills: dict[int, list[tuple[int, float]]] = {}
    rows = recording.rows("oom_kills")
    ordered = {at: sorted(found) for at, found in sizes.items()}
    for member, time, amount in zip(rows["container_id"], rows["time"], rows["memory_bytes"], strict=True):
        if member in column:
            second = time // 1_000_000
            known = _requested(ordered.get(column[member], ()), second) if amount is None else float(amount)
            kills.setdefault(column[member], []).append((second, known))
    return ordered, {at: sorted(found) for at, found in kills.items()}


def _requested(sizes: Sequence[Size], second: int) -> float:
    """Return the memory that was requested at a time, 0 where that is not known: then only usage before it counts."""
    held = [memory for since, _, memory, _ in sizes if since <= second and memory == memory]
    return held[-1] if held else 0.0


def opened(path: Path) -> Recording:
    """Return the recording of this worker process, opened once; another file under the name is another recording."""
    found = path.stat()
    return _opened(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _opened(path: Path, changed: int, size: int) -> Recording:
    return Recording(path)


def _number(value: float | None, divisor: float = 1.0) -> float:
    return float("nan") if value is None else float(value) / divisor
