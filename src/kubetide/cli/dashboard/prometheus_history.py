"""What Prometheus knows of the time before the dashboard looked: usage of workloads and of the whole, throttling.

Answers are remembered, so that twenty viewers cost Prometheus what one does.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import TypeVar

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.dashboard.core.history import FIELDS, STEPS, Series
from kubetide.dashboard.web.components import Remembered
from kubetide.errors import Unavailable
from kubetide.kube.client.client import Client
from kubetide.recommend.core.query_parts import selector
from kubetide.recommend.core.workloads import Usage, Workload, key_of
from kubetide.recommend.prometheus_usage import (
    CPU_METRIC,
    MEMORY_METRIC,
    PERIODS_METRIC,
    THROTTLED_METRIC,
    ListingPrometheus,
    PrometheusUsage,
    Question,
)
from kubetide.stats.prometheus_ranges import LabelledSeries, read_any

K = TypeVar("K")
T = TypeVar("T")

FRESH_SECONDS = 60.0
"""How long an answer of Prometheus is good for: its step is five minutes."""
PATIENCE_SECONDS = 10.0
"""How long a page waits for the sums of a cluster: it can be shown without."""
LEAST_STEP, RATE_SECONDS = 60, 300
REQUESTS_METRIC = "kube_pod_container_resource_requests"
_EACH = "max by (namespace, pod, container)"
"""A container that is scraped twice counts once."""
_MICRO = 1_000_000


class PrometheusHistory:
    """Asks one Prometheus."""

    def __init__(self, prometheus: ListingPrometheus, clock: Clock, question: Question) -> None:
        self._prometheus, self._clock, self._question = prometheus, clock, question
        self._usage: dict[tuple[str, str, str], Remembered[Mapping[str, Usage]]] = {}
        self._fleets: dict[tuple[str, int], Remembered[Series | None]] = {}
        self._throttled: Remembered[Mapping[ObjectKey, float]] = Remembered(clock, FRESH_SECONDS)

    async def usage(self, client: Client, workload: Workload) -> Mapping[str, Usage]:
        """Return the usage by container."""

        async def ask() -> Mapping[str, Usage]:
            source = PrometheusUsage(self._prometheus, self._clock, client.rng)
            found = await source.load([workload], self._question)
            keys = {one.name: key_of(workload, one.name) for one in workload.containers}
            return {name: found[key] for name, key in keys.items() if key in found}

        name = (workload.kind, workload.namespace, workload.name)
        return await _kept(self._usage, name, self._clock, FRESH_SECONDS).get(ask)

    async def fleet(self, namespaces: Collection[str], seconds: float | None) -> Series | None:
        """Return what some namespaces used and requested in all; None where Prometheus knows nothing of them."""
        length = self._question.history.total_seconds() if seconds is None else seconds
        step = max(LEAST_STEP, -(-int(length) // STEPS // LEAST_STEP) * LEAST_STEP)
        chosen = selector(set(namespaces))

        async def ask() -> Series | None:
            end = int(self._clock.now().timestamp()) // step * step
            times = np.arange(end - int(length) // step * step, end + 1, step, dtype=np.float64)
            fields = {name: np.full(times.size, np.nan) for name in FIELDS}
            for name, query in _fleet_queries(chosen, max(step, RATE_SECONDS)).items():
                for series in await self._range(query, int(times[0]), end, step):
                    at = ((series.times / _MICRO - times[0]) / step).astype(np.int64)
                    fields[name][at] = series.values
            known = np.any([np.isfinite(values) for values in fields.values()], axis=0)
            return (
                Series(times[known], {name: values[known] for name, values in fields.items()}) if known.any() else None
            )

        return await _kept(self._fleets, (chosen, step), self._clock, max(FRESH_SECONDS, step)).get(ask)

    async def throttled(self) -> Mapping[ObjectKey, float]:
        """Return the worst share of throttled periods among the containers of each pod that has any."""

        async def ask() -> Mapping[ObjectKey, float]:
            at = int(self._clock.now().timestamp())
            held, periods = (
                f'{_EACH} (rate({metric}{{container!="",pod!=""}}[{RATE_SECONDS}s]))'
                for metric in (THROTTLED_METRIC, PERIODS_METRIC)
            )
            query = f"max by (namespace, pod) ({held} / ({periods} > 0))"
            found: dict[ObjectKey, float] = {}
            for series in await self._range(query, at, at, LEAST_STEP):
                if series.values.size:
                    key = ObjectKey(series.labels.get("namespace", ""), series.labels.get("pod", ""))
                    found[key] = float(series.values[-1])
            return found

        return await self._throttled.get(ask)

    async def _range(self, query: str, start: int, end: int, step: int) -> list[LabelledSeries]:
        form = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return read_any(await self._prometheus.post("/api/v1/query_range", form))
        except TimeoutError as error:
            raise Unavailable(f"no answer within {PATIENCE_SECONDS:.0f} s") from error


def _fleet_queries(chosen: str, window: int) -> dict[str, str]:
    queries = {
        "cpu_used": f"sum({_EACH} (rate({CPU_METRIC}{{{chosen}}}[{window}s])))",
        "memory_used": f"sum({_EACH} ({MEMORY_METRIC}{{{chosen}}}))",
    }
    for resource in ("cpu", "memory"):
        queries[f"{resource}_asked"] = f'sum({_EACH} ({REQUESTS_METRIC}{{{chosen},resource="{resource}"}}))'
    return queries


def _kept(answers: dict[K, Remembered[T]], name: K, clock: Clock, seconds: float) -> Remembered[T]:
    """Return what is remembered under a name, and forget what is old under others."""
    for old in [key for key, answer in answers.items() if answer.is_old]:
        if old != name:
            del answers[old]
    return answers.setdefault(name, Remembered(clock, seconds))
