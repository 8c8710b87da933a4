"""What was seen of a cluster since somebody began to look: bounded, and always from the beginning.

A sample is taken at most every `spacing` seconds of the cluster's time. When all places are taken, neighbours are
folded into one (the mean of CPU, the peak of memory, the last count) and the spacing doubles, so that the memory stays
the same and no peak of memory is lost; from a spacing of ten minutes on, the oldest half goes instead. What was not
measured is NaN and stays a gap; a value counts until the next look, as long as that comes soon.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.dashboard.core.model import Workload
from kubetide.recommend.core.workloads import Usage
from kubetide.verdicts.core.view import ClusterView, WorkloadKey, amount_of

K = TypeVar("K")
ContainerKey = tuple[WorkloadKey, str, str]
"""Workload, pod and container."""
Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.float32]

STEPS = 360
SPACING = 15.0
MOST_SPACING = 600.0
MOST_CONTAINERS = 50_000
TREND = 40
"""Values of a row's trend."""
HELD_SECONDS, HELD_STEPS = 120.0, 4
"""How long a value counts where no other follows: without viewers looks are a minute apart."""
MOST_LINES = 8 * STEPS
"""Of the grid that usage is laid out on, however long nobody looked in between."""

FIELDS = ("pods", "cpu_used", "cpu_asked", "cpu_best", "memory_used", "memory_asked", "memory_best")
FLEET: WorkloadKey = ("", ObjectKey("", ""))
"""What sums over all workloads are kept under."""
_PEAKS = ("memory_used",)
_MEANS = ("cpu_used",)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Numbers over time, one array per field."""

    times: Floats
    fields: Mapping[str, Floats]

    def __getitem__(self, field: str) -> Floats:
        return self.fields[field]

    def columns(self) -> dict[str, list[float]]:
        """Return the numbers as plain values, for JSON, in which NaN is null."""
        return {"times": self.times.tolist(), **{name: values.tolist() for name, values in self.fields.items()}}


def joined(past: Series | None, seen: Series | None) -> Series | None:
    """Return what another source knows of the time before somebody looked, and what was seen from then on."""
    if past is None or seen is None or not seen.times.size:
        return past or seen
    before = past.times < seen.times[0]
    fields = {name: np.concatenate((past[name][before], values)) for name, values in seen.fields.items()}
    return Series(np.concatenate((past.times[before], seen.times)), fields)


class _Table(Generic[K]):
    """Columns of numbers by name, one row per sample; a column that is empty is given to the next who needs one."""

    def __init__(self, fields: Sequence[str], steps: int, most: int) -> None:
        self.fields = fields
        self.columns: dict[K, int] = {}
        self.cells: Cells = np.full((len(fields), steps, 64), np.nan, dtype=np.float32)
        self._most = most
        self._free: list[int] = []

    def of(self, field: str) -> Cells:
        """Return the numbers of one field."""
        cells: Cells = self.cells[self.fields.index(field)]
        return cells

    def put(self, row: int, values: Mapping[K, Sequence[float | None]]) -> None:
        """Set the numbers of one row, field by field; None is a gap."""
        self.cells[:, row] = np.nan
        places, numbers = [], []
        for name, value in values.items():
            if (place := self._place(name)) is not None:
                places.append(place)
                numbers.append(value)
        if places:
            self.cells[:, row, places] = np.array(numbers, dtype=np.float64).T

    def _place(self, name: K) -> int | None:
        place = self.columns.get(name)
        if place is None:
            if self._free:
                place = self._free.pop()
            elif len(self.columns) >= self._most:
                return None
            else:
                place = len(self.columns)
            if place >= self.cells.shape[2]:
                self.cells = np.concatenate((self.cells, np.full_like(self.cells, np.nan)), axis=2)
            self.columns[name] = place
        return place

    def halve(self, *, folding: bool) -> None:
        """Fold neighbours into one, as each field wants it, or forget the older half; free what is then empty."""
        half = self.cells.shape[1] // 2
        for field, cells in zip(self.fields, self.cells, strict=True):
            cells[:half] = _folded(field, cells) if folding else cells[half:].copy()
            cells[half:] = np.nan
        kept = set(np.flatnonzero(np.isfinite(self.cells).any(axis=(0, 1))).tolist())
        for name, place in [(name, place) for name, place in self.columns.items() if place not in kept]:
            del self.columns[name]
            self._free.append(place)


class History:
    """Samples of one cluster."""

    def __init__(self, *, steps: int = STEPS, spacing: float = SPACING) -> None:
        self.spacing = spacing
        self._steps = steps + steps % 2
        self._count = 0
        self._times = np.zeros(self._steps)
        self._workloads = _Table[WorkloadKey](FIELDS, self._steps, MOST_CONTAINERS)
        self._containers = _Table[ContainerKey]((CPU, MEMORY), self._steps, MOST_CONTAINERS)
        self._trends: dict[WorkloadKey, tuple[float, ...]] | None = None
        self._owners: dict[WorkloadKey, set[tuple[str, str]]] = {}
        """Pod and container names that were seen of each workload."""

    @property
    def times(self) -> Floats:
        """When the samples were taken, oldest first."""
        return self._times[: self._count]

    def add(self, view: ClusterView, rows: Sequence[Workload]) -> bool:
        """Take a sample of what was read; return whether it was time for one."""
        now = view.now.timestamp()
        if self._count and now - self._times[self._count - 1] < self.spacing:
            return False
        if self._count == self._steps:
            self._make_room()
        row = self._count
        self._times[row] = now
        values = {(each.kind, ObjectKey(each.namespace, each.name)): _values(each) for each in rows}
        self._workloads.put(row, {**values, FLEET: _sums(values.values())} if values else values)
        self._put_containers(row, view)
        self._count += 1
        self._trends = None
        return True

    def _put_containers(self, row: int, view: ClusterView) -> None:
        owners = {key_of(pod): owner for pod in view.pods if (owner := view.facts(pod).owner) is not None}
        values: dict[ContainerKey, tuple[float | None, ...]] = {}
        for measured in view.pod_metrics:
            owner = owners.get(key_of(measured))
            if owner is None:
                continue
            for one in measured.containers or ():
                name = (measured.metadata.name, one.name)
                self._owners.setdefault(owner, set()).add(name)
                used = (amount_of((one.usage or {}).get(resource, "")) for resource in (CPU, MEMORY))
                numbers = tuple(None if amount is None else amount.nanos / 1e9 for amount in used)
                values[owner, measured.metadata.name, one.name] = numbers
        self._containers.put(row, values)

    def _make_room(self) -> None:
        half, folding = self._steps // 2, self.spacing < MOST_SPACING
        self._times[:half] = self._times[1::2].copy() if folding else self._times[half:].copy()
        self._workloads.halve(folding=folding)
        self._containers.halve(folding=folding)
        self.spacing *= 2 if folding else 1
        self._count = half
        left = self._containers.columns
        self._owners = {
            owner: kept
            for owner, names in self._owners.items()
            if (kept := {name for name in names if (owner, name[0], name[1]) in left})
        }

    def fleet(self) -> Series | None:
        """Return the sums over all workloads; what nobody recommends a size for counts with what it asks for."""
        return self.of(FLEET)

    def of(self, key: WorkloadKey) -> Series | None:
        """Return the samples of one workload; None where it was never seen."""
        place = self._workloads.columns.get(key)
        if place is None:
            return None
        cells = self._workloads.cells[:, : self._count, place].astype(np.float64)
        return Series(self.times, dict(zip(FIELDS, cells, strict=True)))

    def trends(self) -> dict[WorkloadKey, tuple[float, ...]]:
        """Return the last cores that every workload used: the same answer until there is another sample."""
        if self._trends is None:
            last = self._workloads.of("cpu_used")[max(0, self._count - TREND) : self._count]
            columns = np.nan_to_num(last).T.tolist()
            self._trends = {key: tuple(columns[place]) for key, place in self._workloads.columns.items()}
        return self._trends

    def usage(self, key: WorkloadKey, container: str) -> Usage | None:
        """Return what one container used in every pod, on an even grid; None where nothing was measured."""
        pods = sorted(pod for pod, name in self._owners.get(key, ()) if name == container)
        if not pods or self._count < 2:
            return None
        span = float(self.times[-1] - self.times[0])
        step = max(1, round(float(np.median(np.diff(self.times)))), int(span / MOST_LINES))
        start = int(self.times[0]) // step * step
        at = ((self.times - start) // step).astype(np.int64)
        lines = np.arange(int(at[-1]) + 1)
        looked = at[np.searchsorted(at, lines, side="right") - 1]
        forgotten = lines - looked > max(HELD_STEPS, HELD_SECONDS / step)
        found = {}
        for resource in (CPU, MEMORY):
            grid = np.full((lines.size, len(pods)), np.nan)
            for column, pod in enumerate(pods):
                place = self._containers.columns.get((key, pod, container))
                if place is not None:
                    np.fmax.at(grid[:, column], at, self._containers.of(resource)[: self._count, place])
            found[resource] = np.where(forgotten[:, None], np.nan, grid[looked])
        return Usage(start, step, tuple(pods), found[CPU], found[MEMORY], source="dashboard")


def _values(row: Workload) -> tuple[float | None, ...]:
    """Return the numbers of a workload, in the order of `FIELDS`."""
    sizes = (value for each in (row.cpu, row.memory) for value in (each.used, each.asked, each.recommended))
    return (float(row.pods), *sizes)


def _sums(rows: Iterable[tuple[float | None, ...]]) -> tuple[float | None, ...]:
    """Return the sums over all workloads; what nobody recommends a size for counts with what it asks for."""
    columns = dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
    for best, asked in (("cpu_best", "cpu_asked"), ("memory_best", "memory_asked")):
        pairs = zip(columns[best], columns[asked], strict=True)
        columns[best] = tuple(other if value is None else value for value, other in pairs)
    known = ([value for value in columns[field] if value is not None] for field in FIELDS)
    return tuple(sum(values) if values else None for values in known)


def _folded(name: str, cells: Cells) -> Cells:
    """Return neighbours as one: the peak of memory, the mean of CPU, the later of everything else."""
    first, second = cells[0::2], cells[1::2]
    if name in (*_PEAKS, MEMORY):
        return np.fmax(first, second)
    if name in (*_MEANS, CPU):
        both = (first + second) / 2
        return np.where(np.isnan(both), np.fmax(first, second), both)
    return np.where(np.isnan(second), first, second)
