"""Writes down what happens in a simulated cluster, look by look. It reads and changes nothing."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.load.serving import NOTHING
from kubetide.embedded.sim.world import DEPLOYMENTS, EVENTS, STATEFUL_SETS
from kubetide.node.executor.evictor import SUCCESS as EVICTED_BY_AGENT
from kubetide.simulate.core.counting import COLUMNS
from kubetide.stats.buckets import Floats

_GIB = 2.0**30
_EVICTED = frozenset({"EvictedByVPA", "Evicted", EVICTED_BY_AGENT})


@dataclass(slots=True)
class SeriesObserver:
    """The series of all workloads, at every look of the ledger; attach the ledger first."""

    cluster: SimCluster
    ledger: Ledger
    slo_seconds: float
    oom_kills: dict[str, list[float]] = field(default_factory=dict)
    evictions: int = 0
    _rows: dict[WorkloadKey, list[tuple[float, ...]]] = field(default_factory=dict)
    _lost: dict[WorkloadKey, float] = field(default_factory=dict)
    _seen: object = None
    _looked: float = 0.0

    def killed(self, workload: WorkloadKey, requests: float) -> None:
        """Keep when a container was OOM-killed, and the requests that went with it."""
        self.oom_kills.setdefault("/".join(workload), []).append(self.cluster.elapsed())
        self._lost[workload] = self._lost.get(workload, 0.0) + requests

    def stepped(self, now: float) -> None:
        """Add a row per workload whenever the ledger has looked."""
        if self.ledger.latest is self._seen:
            return
        self._seen = self.ledger.latest
        seconds, self._looked = now - self._looked, now
        wanted = self._wanted()
        for key, row in self.ledger.latest.items():
            served = self.ledger.served.get(key, NOTHING)
            rate = served.rate
            missed = served.slower_than(self.slo_seconds) if served.pods else rate
            lost = self._lost.pop(key, 0.0) / seconds if seconds > 0 else 0.0
            self._rows.setdefault(key, []).append(
                (
                    now, wanted.get(key, float("nan")), row.pods, row.ready, rate,
                    min(missed + lost, max(rate, lost)), row.latency,
                    row.used_cores, row.asked_cores, row.used_memory / _GIB, row.asked_memory / _GIB,
                )
            )  # fmt: skip

    def changed(self, resource: object, old: Any, new: Any) -> None:
        """Count evictions by their events."""
        if resource == EVENTS and new is not None and new.get("reason") in _EVICTED:
            self.evictions += old is None or old.get("count") != new.get("count")

    def series(self) -> dict[str, dict[str, Floats]]:
        """Return what was written down, by workload and column."""
        found = {}
        for key in sorted(self._rows):
            columns = np.array(self._rows[key], dtype=np.float64).T
            found["/".join(key)] = dict(zip(COLUMNS, np.ascontiguousarray(columns), strict=True))
        return found

    def _wanted(self) -> dict[WorkloadKey, float]:
        """Return the replicas that workloads are asked to have; what comes and goes with Jobs is asked by nobody."""
        world = self.cluster.world
        return {
            (obj["metadata"]["namespace"], obj["metadata"]["name"]): float(obj["spec"].get("replicas", 1))
            for resource in (DEPLOYMENTS, STATEFUL_SETS)
            for obj in world.all(resource)
        }
