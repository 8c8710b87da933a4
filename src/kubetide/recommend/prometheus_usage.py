"""Usage of containers from Prometheus, gently.

Few wide range queries instead of many narrow ones: all containers of some namespaces at once, in slices of time whose
size follows the number of series, so that no query has 11,000 points or makes Prometheus hold more than a stated
number of samples. What is asked:

    CPU      rate(container_cpu_usage_seconds_total{…}[STEP])
    memory   max_over_time(container_memory_working_set_bytes{…}[1h]): the peak of each hour, for what runs out of
             memory does so at a peak
    OOM      max by (…) (increase(container_oom_events_total{…}[STEP])) > 0, where that metric is
    CFS      throttled periods of all periods of the last day, one number per container

Containers that are scraped twice are folded here, at their maximum: `max by` would cost Prometheus twice the CPU.
Where the budget of samples does not suffice at any step, days are folded where the data is: CPU to its p95
(`quantile_over_time`), memory to its peak. A size from such days is an upper bound of the one from all samples.

An outage delays only: a slice that failed is asked again, and the slices before it are kept. Only a Prometheus that has
not answered at all yet is given up soon.
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
from kubetide.stats.prometheus_ranges import MAX_POINTS, LabelledSeries, PrometheusAnswer, read_any, slices
from kubetide.vpa.recommender.prometheus import Prometheus

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
OOM_METRIC = "container_oom_events_total"
THROTTLED_METRIC, PERIODS_METRIC = "container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_periods_total"
LABELS = ("namespace", "pod", "container")
STEPS = (300, 600, 900, 1800, 3600)
"""Steps to choose from, in seconds; all divide an hour."""
SAMPLES_PER_QUERY = 12_000
"""Measured: more cost Prometheus memory and are no faster (benchmarks/recommend_prometheus.py)."""
LEAST_POINTS = 24
"""Of a query, however many series there are: finding the series costs Prometheus more than a few points. Measured: with
a quarter of them it allocates a tenth less and needs two and a half times the CPU."""
HOUR = 3600
"""The step of memory, in seconds, where the step of CPU was not chosen by hand."""
FOLDED, FOLDED_TO = 86400, "p95 of CPU and peak of memory of each day"
"""The step at which Prometheus folds, in seconds: a day."""
LONGEST_SELECTOR = 4_000
"""Characters of namespace names; with more all namespaces are asked for."""
_RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)
FIRST_ANSWER = timedelta(seconds=10)
"""How long a Prometheus that has never answered is asked again."""
_MICRO = 1_000_000
_BY = f"max by ({', '.join(LABELS)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How much of the past is asked for, and how gently."""

    history: timedelta = timedelta(days=14)
    step: timedelta | None = None
    budget: int = 60_000_000
    """Samples that may be read in all; the step widens until they suffice, then days are folded at Prometheus."""
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
    throttled: dict[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """When the last step is."""
        return self.start + (self.points - 1) * self.step

    def note_throttled(self, series: LabelledSeries) -> None:
        """Keep the share of periods in which a container was throttled."""
        if series.values.size:
            self.throttled[_labels(series)] = float(series.values[-1])

    def put(self, into: dict[tuple[str, str, str], Floats], series: LabelledSeries, width: int = 1) -> None:
        """Write samples that are for `width` steps each; of a container that is scraped twice the larger counts."""
        row = into.get(key := _labels(series))
        if row is None:
            row = into[key] = np.full(self.points, np.nan)
        if not series.times.size:
            return
        at = (series.times // _MICRO - self.start) // self.step
        values = series.values
        if width > 1:
            at = (at[:, None] - np.arange(width - 1, -1, -1)).ravel()
            values = np.repeat(values, width)[at >= 0]
            at = at[at >= 0]
        if int(at[-1] - at[0]) + 1 == at.size:  # no gap: a slice is written several times as fast
            place = slice(int(at[0]), int(at[-1]) + 1)
            row[place] = np.fmax(row[place], values)
        else:
            row[at] = np.fmax(row[at], values)


class _Count(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
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
        series = await self._series({workload.namespace for workload in workloads}, question)
        grid = self._grid(sum(series.values()), question)
        width = HOUR // grid.step if question.step is None and grid.step < HOUR else 1
        wide = width * grid.step
        work: list[tuple[str, int, int, int, Callable[[LabelledSeries], None]]] = []
        for namespaces in grouped(series, question.per_query // LEAST_POINTS):
            cpu, memory, ooms = _queries(selector(namespaces), grid.step, wide)
            count = sum(series[name] for name in namespaces)
            points = max(LEAST_POINTS, min(MAX_POINTS - 1, question.per_query // max(1, count)))
            if grid.step == FOLDED:
                points = 1
            work += [
                (cpu, part.start, part.end, grid.step, lambda one: grid.put(grid.cpu, one))
                for part in slices(grid.start, grid.last, grid.step, points)
            ]
            work += [
                (memory, part.start, part.end, wide, lambda one: grid.put(grid.memory, one, width))
                for part in slices(grid.last - (grid.last - grid.start) // wide * wide, grid.last, wide, points)
            ]
            work += [
                (ooms, part.start, part.end, grid.step, lambda one: _note_ooms(grid, one))
                for part in slices(grid.start, grid.last, grid.step, MAX_POINTS - 1)
            ]
            work.append((_throttled(selector(namespaces)), grid.last, grid.last, grid.step, grid.note_throttled))
        slots = asyncio.Semaphore(max(1, question.parallel))
        done = 0

        async def ask(query: str, start: int, end: int, step: int, take: Callable[[LabelledSeries], None]) -> None:
            nonlocal done
            form = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
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

    async def _series(self, namespaces: set[str], question: Question) -> dict[str, int]:
        """Return how many containers of each namespace have usage, or say what was looked for."""
        now, seconds = self._clock.now().timestamp(), int(question.history.total_seconds())
        chosen = selector(namespaces)
        most: dict[str, int] = {}

        async def count(series: str, at: float) -> None:
            form = {"query": f"count by (namespace) ({series})", "time": f"{at:.0f}"}
            for namespace, found in _counts(await self._ask("/api/v1/query", form, question.deadline)).items():
                if namespace in namespaces:
                    most[namespace] = max(found, most.get(namespace, 0))

        # Pods of the past count too: half-way back there were others.
        await count(f"{MEMORY_METRIC}{{{chosen}}}", now)
        await count(f"{MEMORY_METRIC}{{{chosen}}}", now - seconds / 2)
        if resting := namespaces - most.keys():
            # CronJobs may run at other times than these. What seldom runs has few samples to go through.
            await count(f"count_over_time({MEMORY_METRIC}{{{selector(resting)}}}[{seconds}s])", now)
        if not most:
            raise PrometheusAnswer(
                f"Prometheus has no series {MEMORY_METRIC} with the labels {', '.join(LABELS)} that match {{{chosen}}}"
            )
        return most

    def _grid(self, series: int, question: Question) -> _Grid:
        seconds = int(question.history.total_seconds())
        steps = (*STEPS, FOLDED) if question.step is None else (int(question.step.total_seconds()),)
        for step in steps:
            if step < 1:
                break
            points = max(1, seconds // step)
            if 2 * series * points <= question.budget:
                whole = min(step, HOUR)  # days that are folded end now, not at midnight
                end = int(self._clock.now().timestamp()) // whole * whole
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
                # Who has never answered is more likely misspelt than away.
                patience = deadline if self.cost.bytes else min(deadline, FIRST_ANSWER)
                if self._clock.monotonic() - started >= patience.total_seconds():
                    raise
                await asyncio.sleep(_RETRY.delay(attempt, self._rng))
                attempt += 1
            else:
                self.cost.bytes += len(body)
                return body


def grouped(series: Mapping[str, int], most: int) -> list[set[str]]:
    """Return namespaces in groups of about `most` series; a larger namespace is alone."""
    groups: list[set[str]] = []
    held = 0
    for name, count in sorted(series.items()):
        if not groups or held + count > most or sum(map(len, groups[-1])) + len(name) > LONGEST_SELECTOR // 2:
            groups.append(set())
            held = 0
        groups[-1].add(name)
        held += count
    return groups


def _queries(chosen: str, step: int, wide: int) -> tuple[str, str, str]:
    """Return what is asked for CPU, memory and OOM kills."""
    rate = f"rate({CPU_METRIC}{{{chosen}}}[{STEPS[0] if step == FOLDED else max(step, STEPS[0])}s])"
    return (
        f"quantile_over_time(0.95, {rate}[{FOLDED}s:{STEPS[0]}s])" if step == FOLDED else rate,
        f"max_over_time({MEMORY_METRIC}{{{chosen}}}[{wide}s])",
        f"{_BY} (increase({OOM_METRIC}{{{chosen}}}[{step}s])) > 0",
    )


def selector(namespaces: set[str]) -> str:
    """Return the matchers for containers of some namespaces."""
    parts = ['container!=""', 'container!="POD"', 'pod!=""']
    names = "|".join(sorted(namespaces))
    if namespaces and len(names) <= LONGEST_SELECTOR:
        parts.append(f'namespace="{names}"' if len(namespaces) == 1 else f'namespace=~"{names}"')
    return ",".join(parts)


def _throttled(chosen: str) -> str:
    """Return what is asked for throttling; a container without a limit has no periods."""
    throttled, periods = (
        f"{_BY} (increase({metric}{{{chosen}}}[1d]))" for metric in (THROTTLED_METRIC, PERIODS_METRIC)
    )
    return f"{throttled} / ({periods} > 0)"


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
            throttled=max((grid.throttled[each] for each in mine if each in grid.throttled), default=None),
            folded=FOLDED_TO if grid.step == FOLDED else "",
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


def _counts(body: bytes) -> dict[str, int]:
    try:
        answer = msgspec.json.decode(body, type=_CountAnswer)
        found = {one.metric.get("namespace", ""): int(float(one.value[1])) for one in answer.data.result}
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error
    if answer.status != "success":
        raise KubetideError(f"Prometheus: {answer.error or answer.status}")
    return found
