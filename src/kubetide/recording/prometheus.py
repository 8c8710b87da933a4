"""Records the past of a cluster from Prometheus: usage, sizes, replicas, OOM kills, nodes, load.

Usage is asked for in slices, oldest first, cpu and memory of a slice together, so that a month of a large cluster never
sits in memory. A question that fails is asked again with growing pauses until the deadline; then the recording ends
with an error, or, where gaps are allowed, goes on and names the gap. `rate()` treats a counter that goes back as a
reset, so no sample is made of it. Points at which Prometheus has nothing stay empty.

Sizes, replicas and owners come from kube-state-metrics. What it does not have is left out and noted.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.errors import Unavailable
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.recording.core.layout import ABSENT
from kubetide.recording.tables import write_size
from kubetide.recording.writer import MOST_CPU_MICROS, Writer
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.prometheus_ranges import LabelledSeries, PrometheusAnswer, read_any, slice_points, slices
from kubetide.vpa.recommender.core.history.prometheus_queries import (
    FIRST_SLICE_POINTS,
    Series,
    cpu_query,
    memory_query,
    read_series,
    selector,
)
from kubetide.vpa.recommender.prometheus import Prometheus
from kubetide.vpa.recommender.settings import RecommenderSettings

log = get_logger("record")

RETRY = Backoff(base=1.0, cap=60.0, jitter=0.5)
NEVER_ANSWERED = timedelta(seconds=10)
"""How long a Prometheus is asked that has not answered once: its address is more likely wrong than it away."""
_SECOND = 1_000_000
_WHOSE_LOAD = ("workload", "deployment", "service", "app")
_SIZES = {
    ("requests", "cpu"): "cpu_request",
    ("requests", "memory"): "memory_request",
    ("limits", "cpu"): "cpu_limit",
    ("limits", "memory"): "memory_limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is asked for: seconds from and until, both included, and the distance of points."""

    start: int
    end: int
    step: int


@dataclass(slots=True)
class PrometheusRecorder:
    """Asks Prometheus and writes what it answers."""

    prometheus: Prometheus
    settings: RecommenderSettings
    writer: Writer
    clock: Clock
    rng: random.Random
    deadline: timedelta = timedelta(minutes=5)
    allow_gaps: bool = False
    load_query: str = ""
    load_metric: str = "load"
    _answered: bool = False
    _workloads: dict[ObjectKey, tuple[str, str]] = field(default_factory=dict)

    async def run(self, span: Span) -> int:
        """Write the whole span; return the number of samples."""
        if self.load_query:
            # First: a mistake in somebody's query is told before hours of other answers.
            await self._load(span)
        await self._owners(span)
        total = await self._usage(span)
        await self._sizes(span)
        await self._replicas(span)
        await self._oom_kills(span)
        await self._nodes(span)
        return total

    # ------------------------------------------------------------------ usage

    async def _usage(self, span: Span) -> int:
        at, points, total = span.start, FIRST_SLICE_POINTS, 0
        names = self.settings
        throttled = (
            f"rate(container_cpu_cfs_throttled_periods_total{{{selector(names)}}}[{names.history_resolution}])"
            f" / rate(container_cpu_cfs_periods_total{{{selector(names)}}}[{names.history_resolution}])"
        )
        while at <= span.end:
            part = next(slices(at, span.end, span.step, points))
            try:
                cpu = read_series(await self._ask_range(cpu_query(names), part.start, part.end, span.step), names)
                memory = read_series(await self._ask_range(memory_query(names), part.start, part.end, span.step), names)
                shares = read_series(await self._ask_range(throttled, part.start, part.end, span.step), names)
            except Unavailable as error:
                if not self._may_go_on():
                    raise
                self.writer.gap(part.start, part.end, str(error))
                log.warning("recording a gap", start=part.start, end=part.end, error=str(error))
            else:
                total += self._write(cpu, memory, shares)
                points = slice_points(max(len(cpu), len(memory)))
            at = part.end + span.step
        return total

    def _write(self, cpu: Sequence[Series], memory: Sequence[Series], throttled: Sequence[Series]) -> int:
        by_container: dict[tuple[str, str, str], list[Series | None]] = {}
        for place, listed in enumerate((cpu, memory, throttled)):
            for one in listed:
                by_container.setdefault((one.namespace, one.pod, one.container), [None, None, None])[place] = one
        parts: list[tuple[Ints, ...]] = []
        shares: list[Floats] = []
        for (namespace, pod, container), (used, held, share) in sorted(by_container.items()):
            if used is None and held is None:
                continue
            number = self._container(namespace, pod, container)
            times = np.union1d(*(np.zeros(0, np.int64) if one is None else one.times for one in (used, held)))
            micros, amounts = _on(times, used, 1e6), _on(times, held, 1.0)
            self.writer.note("samples above 2147 cores", int((micros > MOST_CPU_MICROS).sum()))
            parts.append(
                (np.full(times.size, number), times, np.where(micros > MOST_CPU_MICROS, ABSENT, micros), amounts)
            )
            shares.append(_share(times, share))
        if not parts:
            return 0
        ids, times, micros, amounts = (np.concatenate(each) for each in zip(*parts, strict=True))
        self.writer.usage(ids, times, micros, amounts, throttled=np.concatenate(shares))
        return int(ids.size)

    def _container(self, namespace: str, pod: str, container: str) -> int:
        kind, workload = self._workloads.get(ObjectKey(namespace, pod), ("Pod", pod))
        return self.writer.container(namespace, kind, workload, pod, container)

    # ------------------------------------------------------------------ kube-state-metrics

    async def _owners(self, span: Span) -> None:
        """Learn which workload pods are of."""
        above = {}
        async for one in self._metric("kube_replicaset_owner", span, last=True):
            if one.labels.get("owner_kind") == "Deployment":
                above[one.labels.get("namespace", ""), one.labels.get("replicaset", "")] = one.labels["owner_name"]
        async for one in self._metric("kube_pod_owner", span, last=True):
            labels = one.labels
            namespace, kind, name = (labels.get(each, "") for each in ("namespace", "owner_kind", "owner_name"))
            if kind == "ReplicaSet" and (namespace, name) in above:
                kind, name = "Deployment", above[namespace, name]
            if name and name != "<none>":
                self._workloads[ObjectKey(namespace, labels.get("pod", ""))] = (kind, name)

    async def _sizes(self, span: Span) -> None:
        """Write requests and limits where they change."""
        found: dict[int, dict[int, dict[str, float]]] = {}
        for (what, resource), name in _SIZES.items():
            query = f'kube_pod_container_resource_{what}{{resource="{resource}"}}'
            async for one in self._metric(query, span):
                labels = one.labels
                number = self._container(
                    labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")
                )
                for at, value in _changes(one):
                    found.setdefault(number, {}).setdefault(at, {})[name] = value
        for number, changes in sorted(found.items()):
            now: dict[str, float] = {}
            for at, values in sorted(changes.items()):
                now.update(values)
                amounts = [
                    None if name not in now else round(now[name] * (1000.0 if name.startswith("cpu") else 1.0))
                    for name in ("cpu_request", "memory_request", "cpu_limit", "memory_limit")
                ]
                write_size(self.writer, number, at, *amounts)

    async def _replicas(self, span: Span) -> None:
        for kind in ("Deployment", "StatefulSet"):
            lower = kind.lower()
            wanted_query = "kube_deployment_spec_replicas" if kind == "Deployment" else "kube_statefulset_replicas"
            found: dict[tuple[str, str], dict[int, dict[str, int]]] = {}
            for query, name in ((wanted_query, "wanted"), (f"kube_{lower}_status_replicas_ready", "ready")):
                async for one in self._metric(query, span):
                    key = one.labels.get("namespace", ""), one.labels.get(lower, "")
                    for at, value in _changes(one):
                        found.setdefault(key, {}).setdefault(at, {})[name] = int(value)
            for (namespace, workload), changes in sorted(found.items()):
                now: dict[str, int] = {}
                for at, values in sorted(changes.items()):
                    now.update(values)
                    self.writer.row("replicas", namespace=namespace, kind=kind, workload=workload, time=at, **now)

    async def _oom_kills(self, span: Span) -> None:
        """Write an OOM kill where the restarts of a container that was last OOM killed grew.

        Compared with one step before, as far back as Prometheus looks for a value: `increase()` needs two samples in a
        step and would know of no OOM kill where steps are as short as scrapes.
        """
        killed = 'kube_pod_container_status_last_terminated_reason{reason="OOMKilled"}'
        names = "namespace, pod, container"
        restarts = "kube_pod_container_status_restarts_total"
        query = f"({restarts} > {restarts} offset {span.step}s) and on({names}) {killed} == 1"
        async for one in self._metric(query, span):
            labels = one.labels
            number = self._container(labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""))
            for at in one.times.tolist():
                self.writer.row("oom_kills", container_id=number, time=at)

    async def _nodes(self, span: Span) -> None:
        found: dict[tuple[str, int], dict[str, int]] = {}
        for resource, name, scale in (("cpu", "cpu_millis", 1000.0), ("memory", "memory_bytes", 1.0)):
            async for one in self._metric(f'kube_node_status_capacity{{resource="{resource}"}}', span):
                for at, value in _changes(one):
                    found.setdefault((one.labels.get("node", ""), at), {})[name] = round(value * scale)
        for (node, at), sizes in sorted(found.items()):
            self.writer.row("nodes", node=node, time=at, **sizes)

    async def _load(self, span: Span) -> None:
        """Write the series of the user's query; `workload`, or one of the usual labels, says whose load it is."""
        async for one in self._metric(self.load_query, span, needed=True):
            labels = one.labels
            workload = next((labels[each] for each in _WHOSE_LOAD if labels.get(each)), None)
            if workload is None:
                self.writer.note("series of load without a label `workload`")
                continue
            for at, value in zip(one.times.tolist(), one.values.tolist(), strict=True):
                self.writer.row(
                    "load",
                    namespace=labels.get("namespace", ""),
                    workload=workload,
                    metric=self.load_metric,
                    time=at,
                    value=value,
                )

    # ------------------------------------------------------------------ questions

    async def _metric(
        self, query: str, span: Span, *, last: bool = False, needed: bool = False
    ) -> AsyncIterator[LabelledSeries]:
        """Yield the series of a query over the span, in parts of a slice; with `last` only as it was seen anywhere.

        What is refused is left out, unless somebody `needed` it.
        """
        if last:
            query, start = f"max_over_time({query}[{span.end - span.start + span.step}s])", span.end
        else:
            start = span.start
        try:
            for part in slices(start, span.end, span.step, 2000):
                for one in read_any(await self._ask_range(query, part.start, part.end, span.step)):
                    namespace = self.settings.vpa_object_namespace
                    if not namespace or one.labels.get("namespace", namespace) == namespace:
                        yield one
        except PrometheusAnswer as error:
            if needed:
                raise
            log.warning("a query was refused", query=query, error=str(error))
            self.writer.note("queries that were refused")
        except Unavailable as error:
            if not self._may_go_on():
                raise
            log.warning("a query was not answered", query=query, error=str(error))
            self.writer.note("queries that were not answered")

    def _may_go_on(self) -> bool:
        """Return whether what is not answered may be a gap: nobody is asked on who has never answered."""
        return self.allow_gaps and self._answered

    async def _ask_range(self, query: str, start: int, end: int, step: int) -> bytes:
        form = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        return await self._ask("/api/v1/query_range", form)

    async def _ask(self, path: str, form: Mapping[str, str]) -> bytes:
        started, attempt = self.clock.monotonic(), 0
        while True:
            try:
                answer = await self.prometheus.post(path, form)
                self._answered = True
                return answer
            except PrometheusAnswer as error:
                self._answered = True
                raise PrometheusAnswer(
                    f"Prometheus refused {form.get('query', path)!r}: {str(error).strip()}"
                ) from error
            except Unavailable as error:
                patience = self.deadline if self._answered else min(self.deadline, NEVER_ANSWERED)
                left = patience.total_seconds() - (self.clock.monotonic() - started)
                if left <= 0:
                    raise
                delay = min(RETRY.delay(attempt, self.rng), left)
                log.warning("prometheus is away", error=str(error), retry_seconds=round(delay, 1))
                attempt += 1
                await asyncio.sleep(delay)


def _on(times: Ints, series: Series | None, scale: float) -> Ints:
    """Return amounts at some times, `ABSENT` where there is none."""
    found = np.full(times.size, ABSENT)
    if series is not None:
        good = series.values >= 0
        found[np.searchsorted(times, series.times[good])] = np.rint(series.values[good] * scale).astype(np.int64)
    return found


def _share(times: Ints, series: Series | None) -> Floats:
    found = np.full(times.size, np.nan)
    if series is not None:
        known = np.isin(series.times, times)
        found[np.searchsorted(times, series.times[known])] = series.values[known]
    return found


def _changes(series: LabelledSeries) -> list[tuple[int, float]]:
    """Return the first value of a series and every one that differs from the one before."""
    if not series.times.size:
        return []
    new = np.r_[True, series.values[1:] != series.values[:-1]]
    return list(zip(series.times[new].tolist(), series.values[new].tolist(), strict=True))
