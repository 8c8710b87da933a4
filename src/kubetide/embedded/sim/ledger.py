"""What a stretch of simulated time cost and gave, workload by workload; docs/reference/demo.md defines it.

    asked     requests of the pods on nodes, batch and mid resources included, times the hours they were held
    used      CPU that was granted, memory that was held, times hours
    requests  that the load curve brought, whether or not anybody was there to take them
    lost      requests that came while no pod was ready, and those that an OOM-killed pod had taken since the last tick
    slow      requests to pods whose mean response time was a second or more
    well      requests − lost − slow, as a share of requests

A ledger is told of every step of the load model and looks every 15 seconds. It only reads, so that a day that is
watched and one that is not are the same day.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.model import Floats
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.load.serving import NOTHING, Served
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.kubelet import Kubelets
from kubetide.embedded.sim.node.resizes import held_by

GOOD_LATENCY = 1.0
LOOK_SECONDS = 15.0
HISTORY = 240
"""Looks that are remembered for a trend: an hour."""

_BATCH_CPU = ("kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu")
_MEMORY = ("memory", "kubernetes.io/batch-memory", "kubernetes.io/mid-memory")
_HOUR = 3600.0


@dataclass(slots=True)
class Account:
    """One workload's sums."""

    least_pods: int = 10**9
    most_pods: int = 0
    asked_core_hours: float = 0.0
    used_core_hours: float = 0.0
    asked_gib_hours: float = 0.0
    requests: float = 0.0
    lost: float = 0.0
    slow: float = 0.0
    oom_kills: int = 0

    @property
    def served_well(self) -> float | None:
        """The share of requests that were answered in time; None where there were none."""
        if self.requests <= 0:
            return None
        return max(0.0, 1 - (self.lost + self.slow) / self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """One workload at this moment."""

    workload: WorkloadKey
    pods: int = 0
    ready: int = 0
    rate: float = 0.0
    latency: float = 0.0
    used_cores: float = 0.0
    asked_cores: float = 0.0
    used_memory: float = 0.0
    asked_memory: float = 0.0
    batch_cores: float = 0.0
    """What of the cores asked for is overcommitted."""
    restarts: int = 0


@dataclass(slots=True)
class _Sum:
    pods: int = 0
    ready: int = 0
    used_cores: float = 0.0
    asked_cores: float = 0.0
    used_memory: float = 0.0
    asked_memory: float = 0.0
    batch_cores: float = 0.0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class _Holdings:
    """What the pods on nodes hold, by workload, and the rows of the kernel that tell what they use.

    Pods change seldom and are looked at often: this is made anew when one of them changed.
    """

    version: int
    sums: dict[WorkloadKey, _Sum]
    rows: npt.NDArray[np.intp]
    pod: npt.NDArray[np.intp]
    """Whose row it is."""
    workload: npt.NDArray[np.intp]
    """Whose pod it is: a place in `sums`."""

    @classmethod
    def of(cls, kubelets: Kubelets) -> "_Holdings":
        sums: dict[WorkloadKey, _Sum] = {}
        places: dict[WorkloadKey, int] = {}
        rows, pod, workload = [], [], []
        for number, run in enumerate(kubelets.runs()):
            total = sums.setdefault(run.workload, _Sum())
            workload.append(places.setdefault(run.workload, len(places)))
            held = held_by(run.containers)
            batch = sum(held.get(name, 0) for name in _BATCH_CPU) / 1000
            total.pods += 1
            total.asked_cores += held.get("cpu", 0) / 1000 + batch
            total.batch_cores += batch
            total.asked_memory += sum(held.get(name, 0) for name in _MEMORY)
            total.ready += all(container.ready for container in run.containers)
            total.restarts += sum(container.restarts for container in run.containers)
            for container in run.containers:
                if container.row is not None:
                    rows.append(container.row)
                    pod.append(number)
        return cls(kubelets.version, sums, *(np.array(each, dtype=np.intp) for each in (rows, pod, workload)))

    def used(self, kernel: Kernel) -> dict[WorkloadKey, _Sum]:
        """Return the sums with what is used at this moment."""
        cores, memory = self._by_workload(kernel.granted), self._by_workload(kernel.anon)
        for total, used_cores, used_memory in zip(self.sums.values(), cores, memory, strict=True):
            total.used_cores, total.used_memory = used_cores, used_memory
        return self.sums

    def _by_workload(self, column: Floats) -> list[float]:
        # A pod's containers first, then its workload's pods: in this order rounding is the same for any layout.
        by_pod = np.bincount(self.pod, weights=column[self.rows], minlength=len(self.workload))
        found: list[float] = np.bincount(self.workload, weights=by_pod, minlength=len(self.sums)).tolist()
        return found


@dataclass(slots=True)
class Ledger:
    """The accounts of all workloads of a cluster, from when it is attached to it."""

    cluster: SimCluster
    accounts: dict[WorkloadKey, Account] = field(default_factory=dict)
    latest: dict[WorkloadKey, WorkloadRow] = field(default_factory=dict)
    """Every workload as it was when last looked at, those of the scenario first."""
    trends: dict[WorkloadKey, list[float]] = field(default_factory=dict)
    """Cores used at each of the last looks."""
    kills: dict[WorkloadKey, list[float]] = field(default_factory=dict)
    """The seconds at which containers were OOM-killed, those of the last hour."""
    served: dict[WorkloadKey, Served] = field(default_factory=dict)
    """What arrived at every workload with a load when last looked at."""
    _looked: float = 0.0
    _holdings: _Holdings | None = None

    def attach(self) -> None:
        """Listen to the cluster."""
        self.cluster.observers.append(self)

    def killed(self, workload: WorkloadKey, requests: float) -> None:
        """Count an OOM kill and the requests that the pod had taken since the last tick."""
        account = self.accounts.setdefault(workload, Account())
        account.oom_kills += 1
        account.lost += requests
        now = self.cluster.elapsed()
        self.kills[workload] = [*(at for at in self.kills.get(workload, ()) if at > now - _HOUR), now]

    def recent_kills(self, workload: WorkloadKey) -> int:
        """Return how many containers were OOM-killed in the last hour."""
        since = self.cluster.elapsed() - _HOUR
        return sum(at > since for at in self.kills.get(workload, ()))

    def stepped(self, now: float) -> None:
        """Take a sample if it is due."""
        if now + 1e-6 < self._looked + LOOK_SECONDS:
            return
        seconds, self._looked = now - self._looked, now
        sums = self._sums()
        self.served = self.cluster.model.served(now)
        found = {workload: WorkloadRow(workload=workload) for workload in self.cluster.model.profiles}
        for workload in dict.fromkeys((*found, *sums, *self.latest)):
            account = self.accounts.setdefault(workload, Account())
            each = sums.get(workload, _Sum())
            served = self.served.get(workload, NOTHING)
            account.requests += served.rate * seconds
            account.slow += served.slower_than(GOOD_LATENCY) * seconds
            account.lost += 0.0 if served.pods else served.rate * seconds
            account.least_pods = min(account.least_pods, each.pods)
            account.most_pods = max(account.most_pods, each.pods)
            account.used_core_hours += each.used_cores * seconds / _HOUR
            account.asked_core_hours += each.asked_cores * seconds / _HOUR
            account.asked_gib_hours += each.asked_memory / 2**30 * seconds / _HOUR
            found[workload] = WorkloadRow(
                workload=workload,
                pods=each.pods,
                ready=each.ready,
                rate=served.rate,
                latency=served.latency,
                used_cores=each.used_cores,
                asked_cores=each.asked_cores,
                used_memory=each.used_memory,
                asked_memory=each.asked_memory,
                batch_cores=each.batch_cores,
                restarts=each.restarts,
            )
            trend = self.trends.setdefault(workload, [])
            trend.append(each.used_cores)
            del trend[:-HISTORY]
        self.latest = found

    def _sums(self) -> dict[WorkloadKey, _Sum]:
        """Return what the pods of every workload hold and use, in the order of the oldest pods."""
        if self._holdings is None or self._holdings.version != self.cluster.kubelets.version:
            self._holdings = _Holdings.of(self.cluster.kubelets)
        return self._holdings.used(self.cluster.kernel)
