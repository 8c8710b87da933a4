"""What a stretch of simulated time cost and gave: pods, CPU asked for and used, waiting, OOM kills.

Sampled at even steps; hours are sums of samples times the step. "Served well" is the share of samples with requests in
which the mean response time of a workload was below a second.
"""

from dataclasses import dataclass, field
from datetime import datetime

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.model import WorkloadKey
from kubetide.embedded.sim.node.resizes import held_by

GOOD_LATENCY = 1.0


@dataclass(slots=True)
class Account:
    """One workload's sums."""

    least_pods: int = 10**9
    most_pods: int = 0
    requested_core_hours: float = 0.0
    used_core_hours: float = 0.0
    requested_gib_hours: float = 0.0
    samples: int = 0
    good: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload at this moment, for a table."""

    workload: WorkloadKey
    pods: int
    ready: int
    rate: float
    latency: float
    used_cores: float
    requested_cores: float
    memory_bytes: float
    requested_memory: float
    restarts: int


@dataclass(slots=True)
class Ledger:
    """All workloads' accounts since `started`."""

    cluster: SimCluster
    started: datetime
    accounts: dict[WorkloadKey, Account] = field(default_factory=dict)

    def look(self) -> list[WorkloadRow]:
        """Return every workload that runs at this moment, in order of name."""
        cluster = self.cluster
        cluster.kernel.refresh(cluster.elapsed())
        levels = cluster.model.levels()
        found: dict[WorkloadKey, list[float]] = {}
        for run in cluster.kubelets.runs():
            sums = found.setdefault(run.workload, [0.0] * 7)
            held = held_by(run.containers)
            rows = [c.row for c in run.containers if c.row is not None]
            sums[0] += 1
            sums[1] += all(c.ready for c in run.containers)
            sums[2] += float(cluster.kernel.granted[rows].sum())
            sums[3] += held.get("cpu", 0) / 1000
            sums[4] += float(cluster.kernel.anon[rows].sum())
            sums[5] += held.get("memory", 0)
            sums[6] += sum(c.restarts for c in run.containers)
        result = []
        for workload in sorted(found):
            pods, ready, used, requested, memory, asked, restarts = found[workload]
            work = cluster.model.work_of(workload)
            latency = sum(each.latency for each in work) / len(work) if work else 0.0
            result.append(
                WorkloadRow(
                    workload=workload,
                    pods=int(pods),
                    ready=int(ready),
                    rate=levels.get(workload, 0.0),
                    latency=latency,
                    used_cores=used,
                    requested_cores=requested,
                    memory_bytes=memory,
                    requested_memory=asked,
                    restarts=int(restarts),
                )
            )
        return result

    def sample(self, hours: float) -> None:
        """Add the present moment, standing for so many hours."""
        for seen in self.look():
            account = self.accounts.setdefault(seen.workload, Account())
            account.least_pods = min(account.least_pods, seen.pods)
            account.most_pods = max(account.most_pods, seen.pods)
            account.used_core_hours += seen.used_cores * hours
            account.requested_core_hours += seen.requested_cores * hours
            account.requested_gib_hours += seen.requested_memory / 2**30 * hours
            if seen.rate > 0:
                account.samples += 1
                account.good += seen.latency < GOOD_LATENCY
