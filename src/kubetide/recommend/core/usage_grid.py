"""Samples of containers, as answers of Prometheus bring them, at their places in time; usage of workloads from it.

An answer has all containers of a slice of time, so it is placed as a whole; only its rows are written one by one. Of a
container that is scraped twice the larger sample counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.workloads import ContainerKey, Usage, key_of
from kubetide.replay.core.policies import OomKill
from kubetide.stats.buckets import Floats
from kubetide.stats.prometheus_ranges import Matrix, PrometheusAnswer

LABELS = ("namespace", "pod", "container")
Labels = tuple[str, str, str]
_MICRO = 1_000_000


@dataclass(slots=True)
class Samples:
    """One kind of sample of all containers, every `step` seconds from `start`."""

    start: int
    step: int
    points: int
    rows: dict[Labels, Floats] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """When the last step is."""
        return self.start + (self.points - 1) * self.step

    def put(self, found: Matrix) -> None:
        """Write the samples of an answer."""
        rows = [self._row(labels) for labels in found.labels]
        at = (found.times // _MICRO - self.start) // self.step
        inside = (at >= 0) & (at < self.points)
        if not inside.any():
            return
        first, last = int(at[inside].min()), int(at[inside].max())
        block = np.full((len(rows), last - first + 1), np.nan)
        owner = np.repeat(np.arange(len(rows)), found.sizes)
        block[owner[inside], at[inside] - first] = found.values[inside]
        for row, line in zip(rows, block, strict=True):
            place = row[first : last + 1]
            np.fmax(place, line, out=place)

    def _row(self, labels: Mapping[str, str]) -> Floats:
        row = self.rows.get(key := labels_of(labels))
        if row is None:
            row = self.rows[key] = np.full(self.points, np.nan)
        return row


@dataclass(slots=True)
class UsageGrid:
    """All that is known about containers; memory at the step of CPU or at a multiple of it."""

    cpu: Samples
    memory: Samples
    folded: str = ""
    """What Prometheus made of the samples of a step, if there are more than one."""
    ooms: dict[Labels, list[int]] = field(default_factory=dict)
    throttled: dict[Labels, float] = field(default_factory=dict)

    @classmethod
    def of(cls, start: int, step: int, points: int, wide: int, folded: str = "") -> "UsageGrid":
        """Return an empty grid; `wide` is the step of memory, whose last sample is at the last step of CPU."""
        cpu = Samples(start, step, points)
        count = (cpu.last - start) // wide + 1
        return cls(cpu, Samples(cpu.last - (count - 1) * wide, wide, count), folded)

    def note_ooms(self, found: Matrix) -> None:
        """Keep when containers were killed."""
        for one in found.series():
            self.ooms.setdefault(labels_of(one.labels), []).extend((one.times // _MICRO).tolist())

    def note_throttled(self, found: Matrix) -> None:
        """Keep the share of periods in which containers were throttled."""
        for one in found.series():
            if one.values.size:
                self.throttled[labels_of(one.labels)] = float(one.values[-1])

    def usages(self, matcher: PodMatcher) -> dict[ContainerKey, Usage]:
        """Return what belongs to the containers of known workloads, pods sorted by name."""
        members: dict[ContainerKey, list[Labels]] = {}
        limits: dict[ContainerKey, int | None] = {}
        for labels in sorted(self.cpu.rows.keys() | self.memory.rows.keys()):
            namespace, pod, container = labels
            workload = matcher.match(namespace, pod)
            spec = next((one for one in workload.containers if one.name == container), None) if workload else None
            if workload is None or spec is None:
                continue
            key = key_of(workload, container)
            members.setdefault(key, []).append(labels)
            limits[key] = spec.limits.memory_bytes
        return {key: self._usage(mine, limits[key]) for key, mine in members.items()}

    def _usage(self, mine: Sequence[Labels], limit: int | None) -> Usage:
        cpu = [self._at_each_step(self.cpu, each) for each in mine]
        memory = [self._at_each_step(self.memory, each) for each in mine]
        kills = [
            OomKill(column, at, float(limit or np.nan_to_num(np.nanmax(memory[column]))))
            for column, each in enumerate(mine)
            if each in self.memory.rows
            for at in sorted(self.ooms.get(each, ()))
        ]
        throttled = max((self.throttled[each] for each in mine if each in self.throttled), default=None)
        return Usage(
            self.cpu.start,
            self.cpu.step,
            tuple(pod for _, pod, _ in mine),
            np.stack(cpu, axis=1),
            np.stack(memory, axis=1),
            tuple(kills),
            throttled=throttled,
            folded=self.folded,
        )

    def _at_each_step(self, samples: Samples, labels: Labels) -> Floats:
        """Return the samples of a container at the steps of CPU: one that is for several steps stands at each."""
        row = samples.rows.get(labels)
        if row is None:
            return np.full(self.cpu.points, np.nan)
        width = samples.step // self.cpu.step
        return np.repeat(row, width)[-self.cpu.points :] if width > 1 else row


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Return which container a series is about."""
    try:
        return labels["namespace"], labels["pod"], labels["container"]
    except KeyError as error:
        raise PrometheusAnswer(
            f"a usage series has no label {error}; looked for {', '.join(LABELS)}, it has {sorted(labels)}"
        ) from error
