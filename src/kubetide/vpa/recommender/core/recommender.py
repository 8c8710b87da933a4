"""The recommender as a value: samples in, sizes out, without a cluster.

    recommender = Recommender()
    recommender.add("web", at=monday, cpu_millis=120, memory_bytes=200 * 2**20)
    recommender.recommend()["web"].target.cpu_millis

It is the arithmetic of the running recommender on the same histograms: percentiles that decay with a half-life, peaks
of memory per window, a margin, bounds that widen while history is short. What is added must be in order of time per
pod; a sample older than the last one of its pod is refused, as the running recommender refuses it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import PodResourcePolicy
from kubetide.api.values.selectors import EVERYTHING
from kubetide.errors import InvalidInput
from kubetide.stats.instants import microseconds
from kubetide.vpa.core.policy import CPU, MEMORY, Amounts
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend

_KEY = ObjectKey("", "recommender")


@dataclass(frozen=True, slots=True)
class Size:
    """What a container requests."""

    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What one container should request, as `status.recommendation` of a VPA says it."""

    container: str
    target: Size
    lower: Size
    """Below this the container should be resized."""
    upper: Size
    """Above this it wastes resources."""
    uncapped: Size
    """The target before minAllowed and maxAllowed."""


class Recommender:
    """Learns the usage of the containers of one workload and recommends their sizes."""

    def __init__(
        self,
        *,
        options: Options | None = None,
        tuning: Tuning | None = None,
        policy: PodResourcePolicy | None = None,
    ) -> None:
        self._options = options or Options()
        self._model = Model(tuning)
        self._vpa = self._model.set_vpa(VpaState(_KEY, EVERYTHING, policy=policy), keep_history=False)

    def add(self, container: str, *, at: datetime, cpu_millis: int, memory_bytes: int, pod: str = "pod") -> bool:
        """Add what a container of a pod used; return whether it counted."""
        return self.add_all(container, [(at, cpu_millis, memory_bytes)], pod=pod) == 1

    def add_all(self, container: str, samples: Iterable[tuple[datetime, int, int]], *, pod: str = "pod") -> int:
        """Add samples of one container as (time, millicores, bytes), in order; return how many counted."""
        given = list(samples)
        for at, cpu, memory in given:
            _check(container, at)
            if cpu < 0 or memory < 0:
                raise InvalidInput("usage is negative", subject=container, field="cpu" if cpu < 0 else "memory")
        if not given:
            return 0
        row = self._row(container, pod, given[0][0])
        rows = np.full(len(given), row, dtype=np.int64)
        times = np.array([microseconds(at) for at, _, _ in given], dtype=np.int64)
        cpu_counted = self._model.containers.add_cpu(rows, times, np.array([cpu for _, cpu, _ in given]))
        self._model.containers.add_memory(rows, times, np.array([memory for _, _, memory in given]))
        return int(cpu_counted.sum())

    def add_oom(self, container: str, *, at: datetime, memory_bytes: int, pod: str = "pod") -> bool:
        """Add an OOM kill of a container that requested, or used, so much memory; return whether it counted."""
        _check(container, at)
        row = self._row(container, pod, at)
        return self._model.containers.add_oom(row, microseconds(at), memory_bytes)

    def recommend(self) -> dict[str, Recommendation]:
        """Return the recommendation of every container that has samples, by name."""
        found = recommend(self._model, [self._vpa], self._options)[_KEY]
        return {
            each.container: Recommendation(
                container=each.container,
                target=_size(each.target),
                lower=_size(each.lower),
                upper=_size(each.upper),
                uncapped=_size(each.uncapped),
            )
            for each in found
        }

    def _row(self, container: str, pod: str, at: datetime) -> int:
        key = ObjectKey(_KEY.namespace, pod)
        if key not in self._model.pods:
            self._model.set_pod(key, {}, "Running", now=at)
        return self._model.set_container(key, container, now=at)


def _check(container: str, at: datetime) -> None:
    if at.tzinfo is None:
        raise InvalidInput("the time of a sample has no time zone", subject=container, field="at")


def _size(amounts: Amounts | None) -> Size:
    given = amounts or {}
    cpu, memory = given.get(CPU), given.get(MEMORY)
    return Size(cpu.milli if cpu is not None else 0, memory.value if memory is not None else 0)
