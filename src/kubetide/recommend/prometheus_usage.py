"""Usage of containers from Prometheus, gently.

Few wide range queries instead of many narrow ones: all containers of the namespaces at once, in slices of time whose
size follows the number of series, so that no query has 11,000 points or makes Prometheus hold more than a stated
number of samples. Doubly scraped containers are folded where the data is. What is asked:

    CPU      max by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{…}[STEP]))
    memory   max by (…) (max_over_time(container_memory_working_set_bytes{…}[STEP])): no peak between steps is lost
    OOM      max by (…) (increase(container_oom_events_total{…}[STEP])) > 0, where that metric is

An outage delays only: a slice that failed is asked again, and the slices before it are kept.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import numpy as np

from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.pacing import Backoff
from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.workloads import ContainerKey, Usage, Workload, key_of
from kubetide.replay.core.policies import OomKill
from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.history.prometheus_queries import (
    MAX_POINTS,
    LabelledSeries,
    PrometheusAnswer,
    read_any,
    slices,
)
from kubetide.vpa.recommender.prometheus import Prometheus

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
OOM_METRIC = "container_oom_events_total"
LABELS = ("namespace", "pod", "container")
STEPS = (300, 600, 900, 1800, 3600)
"""Steps to choose from, in seconds; all divide an hour."""
SAMPLES_PER_QUERY = 25_000
"""Measured: 400,000 cost Prometheus three times the memory and are no faster (benchmarks/recommend_prometheus.py)."""
LEAST_POINTS = 24
"""Of a query, however many series there are: finding the series costs Prometheus more than a few points."""
LONGEST_SELECTOR = 4_000
"""Characters of namespace names; with more all namespaces are asked for."""
_RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)
_MICRO = 1_000_000
_BY = f"max by ({', '.join(LABELS)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How much of the past is asked for, and how gently."""

    history: timedelta = timedelta(days=14)
    step: timedelta | None = None
    budget: int = 60_000_000
    """Samples that may be read in all; the step widens until they suffice."""
    per_query: int = SAMPLES_PER_QUERY
    """Samples that one query may return: what Prometheus holds in memory at a time."""
    parallel: int = 2
    deadline: timedelta = timedelta(minutes=5)


@dataclass(slots=True)
class Cost:
    """What was asked of Prometheus."""

    requests: int = 0
    samples: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Grid:
    start: int
    step: int
    points: int
    cpu: dict[tuple[str, str, str], Floats] = field(default_factory=dict)
    memory: dict[tuple[str, str, str], Floats] = field(default_factory=dict)
    ooms: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)

    def put(self, into: dict[tuple[str, str, str], Floats], series: LabelledSeries) -> None:
        """Write samples to their places."""
        row = into.get(key := _labels(series))
        if row is None:
            row = into[key] = np.full(self.points, np.nan)
        at = (series.times // _MICRO - self.start) // self.step
        row[at] = series.values


class _Count(msgspec.Struct, frozen=True):
    value: tuple[float, str] = (0.0, "0")


class _CountData(msgspec.Struct, frozen=True):
    result: list[_Count] = []


class _CountAnswer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _CountData = _CountData()


class PrometheusUsage:
    """Reads the usage of workloads; `progress(done, of)` hears about every slice."""

    def __init__(
        self,
        prometheus: Prometheus,
        clock: Clock,
        rng: random.Random,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._rng = rng
        self._progress = progress or (lambda done, of: None)
        self.cost = Cost()

    async def load(self, workloads: Sequence[Workload], question: Question) -> dict[ContainerKey, Usage]:
        """Return usage by container; containers without any are left out."""
        if not workloads:
            return {}
        chosen = selector({workload.namespace for workload in workloads})
        series = await self._series(chosen, question)
        grid = self._grid(series, question)
        window = f"{max(grid.step, STEPS[0])}s"
        cpu = f"{_BY} (rate({CPU_METRIC}{{{chosen}}}[{window}]))"
        memory = f"{_BY} (max_over_time({MEMORY_METRIC}{{{chosen}}}[{grid.step}s]))"
        ooms = f"{_BY} (increase({OOM_METRIC}{{{chosen}}}[{grid.step}s])) > 0"
        last = grid.start + (grid.points - 1) * grid.step
        points = max(LEAST_POINTS, min(MAX_POINTS - 1, question.per_query // max(1, series)))
        parts = list(slices(grid.start, last, grid.step, points))
        work: list[tuple[str, int, int, Callable[[LabelledSeries], None]]] = []
        for part in parts:
            work.append((cpu, part.start, part.end, lambda one: grid.put(grid.cpu, one)))
            work.append((memory, part.start, part.end, lambda one: grid.put(grid.memory, one)))
        work += [
            (ooms, part.start, part.end, lambda one: _note_ooms(grid, one))
            for part in slices(grid.start, last, grid.step, MAX_POINTS - 1)
        ]
        slots = asyncio.Semaphore(max(1, question.parallel))
        done = 0

        async def ask(query: str, start: int, end: int, take: Callable[[LabelledSeries], None]) -> None:
            nonlocal done
            form = {"query": query, "start": str(start), "end": str(end), "step": str(grid.step)}
            async with slots:
                body = await self._ask("/api/v1/query_range", form, question.deadline)
            for one in read_any(body):
                self.cost.samples += one.times.size
                take(one)
            done += 1
            self._progress(done, len(work))

        try:
            async with asyncio.TaskGroup() as group:
                for each in work:
                    group.create_task(ask(*each), name="recommend/query")
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return _usages(workloads, grid)

    async def _series(self, chosen: str, question: Question) -> int:
        """Return how many containers have usage, or say what was looked for."""
        # Pods of the past count too: half-way back there were others.
        now = self._clock.now().timestamp()
        most = 0
        for back in (0.0, question.history.total_seconds() / 2):
            query = f"count({_BY} ({MEMORY_METRIC}{{{chosen}}}))"
            body = await self._ask("/api/v1/query", {"query": query, "time": f"{now - back:.0f}"}, question.deadline)
            most = max(most, _count(body))
        if not most:
            raise PrometheusAnswer(
                f"Prometheus has no series {MEMORY_METRIC} with the labels {', '.join(LABELS)} that match {{{chosen}}}"
            )
        return most

    def _grid(self, series: int, question: Question) -> _Grid:
        seconds = int(question.history.total_seconds())
        steps = STEPS if question.step is None else (int(question.step.total_seconds()),)
        for step in steps:
            if step < 1:
                break
            points = max(1, seconds // step)
            if 2 * series * points <= question.budget:
                end = int(self._clock.now().timestamp()) // step * step
                return _Grid(start=end - (points - 1) * step, step=step, points=points)
        raise InvalidInput(
            f"{series:,} series over {seconds // 86400} days are more than {question.budget:,} samples: "
            "choose fewer namespaces, a shorter --history, a longer --step or a larger --budget",
            field="--budget",
        )

    async def _ask(self, path: str, form: Mapping[str, str], deadline: timedelta) -> bytes:
        started, attempt = self._clock.monotonic(), 0
        while True:
            self.cost.requests += 1
            try:
                body = await self._prometheus.post(path, form)
            except Unavailable:
                if self._clock.monotonic() - started >= deadline.total_seconds():
                    raise
                await asyncio.sleep(_RETRY.delay(attempt, self._rng))
                attempt += 1
            else:
                self.cost.bytes += len(body)
                return body


def selector(namespaces: set[str]) -> str:
    """Return the matchers for containers of some namespaces."""
    parts = ['container!=""', 'container!="POD"', 'pod!=""']
    names = "|".join(sorted(namespaces))
    if namespaces and len(names) <= LONGEST_SELECTOR:
        parts.append(f'namespace="{names}"' if len(namespaces) == 1 else f'namespace=~"{names}"')
    return ",".join(parts)


def _note_ooms(grid: _Grid, series: LabelledSeries) -> None:
    grid.ooms.setdefault(_labels(series), []).extend((series.times // _MICRO).tolist())


def _usages(workloads: Sequence[Workload], grid: _Grid) -> dict[ContainerKey, Usage]:
    """Return what belongs to the containers of today's workloads, pods sorted by name."""
    matcher = PodMatcher(workloads)
    members: dict[ContainerKey, list[tuple[str, str, str]]] = {}
    limits: dict[ContainerKey, int | None] = {}
    for labels in sorted(grid.cpu.keys() | grid.memory.keys()):
        namespace, pod, container = labels
        workload = matcher.match(namespace, pod)
        spec = next((one for one in workload.containers if one.name == container), None) if workload else None
        if workload is None or spec is None:
            continue
        key = key_of(workload, container)
        members.setdefault(key, []).append(labels)
        limits[key] = spec.limits.memory_bytes
    nothing = np.full(grid.points, np.nan)
    return {
        key: Usage(
            grid.start,
            grid.step,
            tuple(pod for _, pod, _ in mine),
            np.stack([grid.cpu.get(each, nothing) for each in mine], axis=1),
            np.stack([grid.memory.get(each, nothing) for each in mine], axis=1),
            tuple(
                OomKill(column, at, float(limits[key] or np.nan_to_num(np.nanmax(grid.memory.get(each, nothing)))))
                for column, each in enumerate(mine)
                if each in grid.memory
                for at in sorted(grid.ooms.get(each, ()))
            ),
        )
        for key, mine in members.items()
    }


def _labels(series: LabelledSeries) -> tuple[str, str, str]:
    try:
        namespace, pod, container = (series.labels[name] for name in LABELS)
    except KeyError as error:
        raise PrometheusAnswer(
            f"a usage series has no label {error}; looked for {', '.join(LABELS)}, it has {sorted(series.labels)}"
        ) from error
    return namespace, pod, container


def _count(body: bytes) -> int:
    try:
        answer = msgspec.json.decode(body, type=_CountAnswer)
        found = [int(float(one.value[1])) for one in answer.data.result]
    except (msgspec.DecodeError, ValueError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error
    if answer.status != "success":
        raise KubetideError(f"Prometheus: {answer.error or answer.status}")
    return max(found, default=0)
