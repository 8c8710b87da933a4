"""CPU evict and memory evict as strategies: when, how much, whom.

    CPU:    satisfaction of best-effort requests below its lower bound, while their usage is high
    memory: the node's used percent at or above the threshold; freed down to the lower bound

Both return ordered candidates and the amount to release; the evictor asks the API for one after the other and
counts only what it accepted. A strategy cools down after an accepted eviction, CPU evict also after the agent's
start, so that numbers settle before anyone goes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.objects import resources
from kubetide.api.qos import qos
from kubetide.api.values.quantity import ZERO
from kubetide.node.core.plan import Eviction, Notice, Plan
from kubetide.node.core.qos.satisfaction import BestEffortCpu, SatisfactionPolicy, release_amount
from kubetide.node.core.qos.switch import skipped, threshold_of
from kubetide.node.core.qos.victims import (
    DEFAULT_GRACE,
    BestEffortPod,
    Selection,
    cpu_order,
    memory_need,
    memory_order,
    select,
)
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, LAST
from kubetide.node.core.snapshot import PodState, Snapshot

BY_MEMORY = "EvictPodByNodeMemoryUsage"
BY_CPU = "EvictPodByBECPUSatisfaction"
BY_ALLOCATABLE = "evictByAllocatable"
STUCK = "evictPodStuck"
SHORT = "evictPodInsufficient"


@dataclass(slots=True)
class CpuEvict:
    """Lets some best-effort pods go so that the others get enough CPU."""

    started_at: datetime
    interval: timedelta = timedelta(seconds=1)
    cool: timedelta = timedelta(seconds=20)
    name: str = "cpu-evict"
    gate: str = "BECPUEvict"
    last_eviction: datetime | None = None

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the candidates when best-effort pods starve."""
        threshold = threshold_of(snapshot)
        if threshold is None or not threshold.enable:
            return skipped("not enabled by the NodeSLO")
        if snapshot.now - (self.last_eviction or self.started_at) < self.cool:
            return skipped("cooling down")
        capacity = resources.parse_list(snapshot.node.status.capacity) if snapshot.node else {}
        if snapshot.node is None or capacity.get(resources.CPU, ZERO).sign <= 0:
            return skipped("the node's CPU capacity is not known")
        collect = snapshot.collect_interval
        window = threshold.cpu_evict_time_window_seconds
        seconds = window if window is not None and window > collect else int(2 * collect)
        allocatable = resources.parse_list(snapshot.node.status.allocatable).get(qos.BATCH_CPU)
        release, why = release_amount(
            _best_effort_cpu(snapshot, seconds, AVG),
            _best_effort_cpu(snapshot, 2 * collect, LAST),
            SatisfactionPolicy(
                lower_percent=threshold.cpu_evict_be_satisfaction_lower_percent,
                upper_percent=threshold.cpu_evict_be_satisfaction_upper_percent,
                usage_threshold_percent=threshold.cpu_evict_be_usage_threshold_percent,
            ),
            window_seconds=seconds,
            collect_interval_seconds=int(collect) or 1,
            allocatable_batch_milli=None if allocatable is None else allocatable.value,
            by_allocatable=threshold.cpu_evict_policy == BY_ALLOCATABLE,
        )
        if release <= 0:
            return Plan(trace={"releaseMilli": 0, "reason": why})
        found = select(
            best_effort_pods(snapshot), release, order=cpu_order, amount=lambda pod: pod.request_milli, now=snapshot.now
        )
        message = f"best-effort CPU satisfaction is too low, {release} milli-CPU must be released"
        return _plan(found, BY_CPU, message, unit="milli-CPU", stop_containers=False)

    def evicted(self, now: datetime) -> None:
        """Begin to cool down: at least one eviction was accepted."""
        self.last_eviction = now


@dataclass(slots=True)
class MemoryEvict:
    """Frees memory before the kernel has to kill."""

    interval: timedelta = timedelta(seconds=1)
    cool: timedelta = timedelta(seconds=4)
    name: str = "memory-evict"
    gate: str = "BEMemoryEvict"
    last_eviction: datetime | None = None

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the candidates when the node's memory is short."""
        if self.last_eviction is not None and snapshot.now - self.last_eviction < self.cool:
            return skipped("cooling down")
        threshold = threshold_of(snapshot)
        if threshold is None or not threshold.enable:
            return skipped("not enabled by the NodeSLO")
        percent = threshold.memory_evict_threshold_percent
        if percent is None or percent < 0:
            return skipped("no usable memory threshold")
        lower = threshold.memory_evict_lower_percent
        lower = percent - 2 if lower is None else lower
        if lower >= percent:
            return skipped("the lower bound is not below the threshold")
        capacity = resources.parse_list(snapshot.node.status.capacity) if snapshot.node else {}
        total = capacity.get(resources.MEMORY, ZERO).value
        used = snapshot.metrics.last(kinds.NODE_MEMORY)
        if total <= 0 or used is None:
            return skipped("the node's memory or its usage is not known")
        need = memory_need(int(used), total, threshold_percent=percent, lower_percent=lower)
        if need <= 0:
            return Plan(trace={"usedPercent": int(used) * 100 // total, "thresholdPercent": percent})
        found = select(
            best_effort_pods(snapshot),
            need,
            order=memory_order,
            amount=lambda pod: pod.memory_used or 0,
            now=snapshot.now,
        )
        message = f"node memory {int(used) * 100 // total} % is above {percent} %, {need} bytes must be freed"
        return _plan(found, BY_MEMORY, message, unit="bytes", stop_containers=True)

    def evicted(self, now: datetime) -> None:
        """Begin to cool down: at least one eviction was accepted."""
        self.last_eviction = now


def best_effort_pods(snapshot: Snapshot) -> list[BestEffortPod]:
    """Return the pods that may be evicted: those of class BE by label."""
    found: list[BestEffortPod] = []
    for pod in snapshot.pods:
        if pod.raw_qos != qos.BE or pod.pod.status.phase in ("Succeeded", "Failed"):
            continue
        cpu = snapshot.metrics.last(kinds.POD_CPU, {kinds.POD_UID: pod.uid})
        memory = snapshot.metrics.last(kinds.POD_MEMORY, {kinds.POD_UID: pod.uid})
        found.append(
            BestEffortPod(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                priority=pod.pod.spec.priority,
                request_milli=qos.extended_request(pod.pod, qos.BATCH_CPU),
                used_milli=int((cpu or 0.0) * 1000),
                memory_used=None if memory is None else int(memory),
                terminating_since=_leaving_since(pod, snapshot),
                grace=_grace(pod),
            )
        )
    return found


def _leaving_since(pod: PodState, snapshot: Snapshot) -> datetime | None:
    deletion = pod.pod.metadata.deletion_timestamp
    if deletion is not None:
        # The API stamps the end of the grace period, not its beginning.
        return deletion - _grace(pod)
    return snapshot.evicted.get(pod.uid)


def _grace(pod: PodState) -> timedelta:
    seconds = pod.pod.metadata.deletion_grace_period_seconds
    if seconds is None:
        seconds = pod.pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if seconds is None else timedelta(seconds=max(seconds, 0))


def _best_effort_cpu(snapshot: Snapshot, seconds: float, aggregate: str) -> BestEffortCpu:
    values: dict[str, float] = {}
    counts: list[int] = []
    for allocation in ("usage", "request", "real-limit"):
        points = snapshot.metrics.query(
            kinds.NODE_BE, {"be_resource": "cpu", "be_allocation": allocation}, seconds=seconds
        )
        counts.append(len(points))
        values[allocation] = points.aggregate(aggregate) or 0.0
    return BestEffortCpu(
        count=min(counts), used=values["usage"], request=values["request"], real_limit=values["real-limit"]
    )


def _plan(found: Selection, reason: str, message: str, *, unit: str, stop_containers: bool) -> Plan:
    evictions: Iterable[Eviction] = (
        Eviction(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            reason=reason,
            message=message,
            stop_containers=stop_containers,
            release=amount,
        )
        for pod, amount in (found.candidates if found.remaining > 0 else ())
    )
    notices = [
        Notice(
            reason=STUCK,
            message="terminating for more than a minute beyond its grace period; no longer counted as released",
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
        )
        for pod in found.stuck
    ]
    if found.shortfall > 0:
        notices.append(
            Notice(
                reason=SHORT, message=f"{found.shortfall} {unit} are missing and no further pod is known to free any"
            )
        )
    trace = {
        "need": found.need,
        "pending": found.pending,
        "candidates": [f"{pod.namespace}/{pod.name}" for pod, _ in found.candidates],
        "victims": [f"{pod.namespace}/{pod.name}" for pod in (found.victims if found.remaining > 0 else ())],
        "shortfall": found.shortfall,
        "reason": message,
    }
    return Plan(evictions=tuple(evictions), need=float(found.remaining), notices=tuple(notices), trace=trace)
