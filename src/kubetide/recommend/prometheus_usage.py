"""Usage of containers from Prometheus, gently.

Few wide range queries instead of many narrow ones: containers of several workloads at once (`core/query_parts.py`), in
slices of time whose size follows the number of series, so that no query has 11,000 points or makes Prometheus hold more
than a stated number of samples. What is asked:

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
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import msgspec

from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.pacing import Backoff
from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.query_parts import Part, parts, selector, wanted
from kubetide.recommend.core.usage_grid import LABELS, Samples, UsageGrid
from kubetide.recommend.core.workloads import ContainerKey, Usage, Workload
from kubetide.stats.prometheus_ranges import (
    MAX_POINTS,
    Matrix,
    PrometheusAnswer,
    Slice,
    read_matrix,
    read_names,
    slices,
)
from kubetide.vpa.recommender.prometheus import Prometheus

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
OOM_METRIC = "container_oom_events_total"
THROTTLED_METRIC, PERIODS_METRIC = "container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_periods_total"
STEPS = (300, 600, 900, 1800, 3600)
"""Steps to choose from, in seconds; all divide an hour."""
SAMPLES_PER_QUERY = 9_600
"""Measured: a quarter more allocates a tenth more in Prometheus and saves a twentieth of its CPU; fewer save no memory
(benchmarks/recommend_prometheus.py)."""
GOOD_POINTS = 480
"""Of a query, where pods can be told apart: 20 series over 40 hours. Measured: with 24 points of 500 series Prometheus
needs about 1.5 times the CPU, and more points than these save nothing."""
LEAST_POINTS = 24
"""Of a query, however many series there are: finding the series costs Prometheus more than a few points. Measured: with
a quarter of them it allocates a tenth less and needs two and a half times the CPU."""
HOUR = 3600
"""The step of memory, in seconds, where the step of CPU was not chosen by hand."""
FOLDED, FOLDED_TO = 86400, "p95 of CPU and peak of memory of each day"
"""The step at which Prometheus folds, in seconds: a day."""
_RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)
FIRST_ANSWER = timedelta(seconds=10)
"""How long a Prometheus that has never answered is asked again."""
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


class ListingPrometheus(Prometheus, Protocol):
    """Answers queries, and lists the values of a label, which Prometheus does for GET only."""

    async def get(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send parameters and return the body of the answer."""
        ...


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
        prometheus: ListingPrometheus,
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
        matcher = PodMatcher(workloads)
        step, wide = grid.cpu.step, grid.memory.step
        work: list[tuple[str, Slice, int, Callable[[Matrix], None]]] = []
        for chosen in await self._parts(series, matcher, grid.cpu, question):
            cpu, memory, ooms = _queries(chosen.selector, step, wide)
            points = max(LEAST_POINTS, min(MAX_POINTS - 1, question.per_query // max(1, chosen.series)))
            if step == FOLDED:
                points = 1
            begin, last = grid.cpu.start, grid.cpu.last
            work += [(cpu, part, step, grid.cpu.put) for part in slices(begin, last, step, points)]
            work += [(memory, part, wide, grid.memory.put) for part in slices(grid.memory.start, last, wide, points)]
            work += [(ooms, part, step, grid.note_ooms) for part in slices(begin, last, step, MAX_POINTS - 1)]
            work.append((_throttled(chosen.selector), Slice(last, last, 1), step, grid.note_throttled))
        slots = asyncio.Semaphore(max(1, question.parallel))
        done = 0

        async def ask(query: str, part: Slice, step: int, take: Callable[[Matrix], None]) -> None:
            nonlocal done
            form = {"query": query, "start": str(part.start), "end": str(part.end), "step": str(step)}
            async with slots:
                body = await self._ask("/api/v1/query_range", form, question.deadline)
            found = read_matrix(body)
            self.cost.samples += found.times.size
            take(found)
            done += 1
            self._progress(done, len(work))

        try:
            async with asyncio.TaskGroup() as group:
                for each in work:
                    group.create_task(ask(*each), name="recommend/query")
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return grid.usages(matcher)

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

    def _grid(self, series: int, question: Question) -> UsageGrid:
        seconds = int(question.history.total_seconds())
        steps = (*STEPS, FOLDED) if question.step is None else (int(question.step.total_seconds()),)
        for step in steps:
            if step < 1:
                break
            points = max(1, seconds // step)
            if 2 * series * points <= question.budget:
                whole = min(step, HOUR)  # days that are folded end now, not at midnight
                end = int(self._clock.now().timestamp()) // whole * whole
                wide = max(step, HOUR) if question.step is None else step
                folded = FOLDED_TO if step == FOLDED else ""
                return UsageGrid.of(end - (points - 1) * step, step, points, wide, folded)
        raise InvalidInput(
            f"{series:,} series over {seconds // 86400} days are more than {question.budget:,} samples: "
            "choose fewer namespaces, a shorter --history, a longer --step or a larger --budget",
            field="--budget",
        )

    async def _parts(
        self, series: dict[str, int], matcher: PodMatcher, span: Samples, question: Question
    ) -> list[Part]:
        """Return what is asked for together, large namespaces by the pods that belong to workloads."""
        together = max(1, question.per_query // max(LEAST_POINTS, min(GOOD_POINTS, span.points)))
        pods: dict[str, list[str]] = {}
        at_a_time = dict(series)
        for namespace in (name for name, count in series.items() if count > together):
            series_of = f"{MEMORY_METRIC}{{{selector({namespace})}}}"
            form = {"match[]": series_of, "start": str(span.start), "end": str(span.last)}
            self.cost.requests += 1
            try:
                answer = await self._prometheus.get("/api/v1/label/pod/values", form)
                names, containers = wanted(matcher, namespace, read_names(answer))
            except (PrometheusAnswer, Unavailable):
                continue  # it cannot list them: the namespace is asked for as a whole
            self.cost.bytes += len(answer)
            pods[namespace] = names
            at_a_time[namespace] = min(series[namespace], containers)
        return parts(at_a_time, together, pods, question.per_query // span.points)

    async def _ask(self, path: str, form: Mapping[str, str], deadline: timedelta, *, by_get: bool = False) -> bytes:
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


def _queries(chosen: str, step: int, wide: int) -> tuple[str, str, str]:
    """Return what is asked for CPU, memory and OOM kills."""
    rate = f"rate({CPU_METRIC}{{{chosen}}}[{STEPS[0] if step == FOLDED else max(step, STEPS[0])}s])"
    return (
        f"quantile_over_time(0.95, {rate}[{FOLDED}s:{STEPS[0]}s])" if step == FOLDED else rate,
        f"max_over_time({MEMORY_METRIC}{{{chosen}}}[{wide}s])",
        f"{_BY} (increase({OOM_METRIC}{{{chosen}}}[{step}s])) > 0",
    )


def _throttled(chosen: str) -> str:
    """Return what is asked for throttling; a container without a limit has no periods."""
    throttled, periods = (
        f"{_BY} (increase({metric}{{{chosen}}}[1d]))" for metric in (THROTTLED_METRIC, PERIODS_METRIC)
    )
    return f"{throttled} / ({periods} > 0)"


def _counts(body: bytes) -> dict[str, int]:
    try:
        answer = msgspec.json.decode(body, type=_CountAnswer)
        found = {one.metric.get("namespace", ""): int(float(one.value[1])) for one in answer.data.result}
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error
    if answer.status != "success":
        raise KubetideError(f"Prometheus: {answer.error or answer.status}")
    return found
