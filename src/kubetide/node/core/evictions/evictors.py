"""CPU evict and memory evict as strategies: one sync asks their features and plans who leaves.

Each feature that is switched on may add one task; one that cannot act does not keep the others from acting. The agent
asks the API for one pod after the other and counts only what it accepted. A strategy cools down after an accepted
eviction, CPU evict also after the agent's start, so that numbers settle before anyone goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from kubetide.api.objects import resources
from kubetide.api.values.quantity import ZERO
from kubetide.node.core.evictions import features as feature_names
from kubetide.node.core.evictions.features import Unusable, Wanted, ask
from kubetide.node.core.evictions.pods import EvictablePod, evictable_pods
from kubetide.node.core.evictions.selection import planned
from kubetide.node.core.plan import Amounts, Counted, Eviction, EvictionTask, Notice, Plan
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.snapshot import Snapshot

REASONS = {
    feature_names.BE_CPU: "EvictPodByBECPUSatisfaction",
    feature_names.BE_MEMORY: "EvictPodByNodeMemoryUsage",
}
"""Reasons of evictions in events and the audit log; the other features give their own name."""
STUCK = "evictPodStuck"
SHORT = "evictPodInsufficient"
_STOPS_CONTAINERS = frozenset({feature_names.BE_MEMORY, feature_names.MEMORY_USAGE})
"""When memory runs out a pod that takes its whole grace period may be too late."""


@dataclass(slots=True)
class CpuEvict:
    """Lets pods go when the CPU that is left for them is too little."""

    started_at: datetime
    interval: timedelta = timedelta(seconds=1)
    cool: timedelta = timedelta(seconds=20)
    features: Sequence[str] = (feature_names.BE_CPU,)
    name: str = "cpu-evict"
    last_eviction: datetime | None = None

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return who should leave so that the others get enough CPU."""
        if snapshot.now - (self.last_eviction or self.started_at) < self.cool:
            return skipped("cooling down")
        return eviction_plan(snapshot, self.features, resources.CPU)

    def evicted(self, now: datetime) -> None:
        """Begin to cool down: at least one eviction was accepted."""
        self.last_eviction = now


@dataclass(slots=True)
class MemoryEvict:
    """Frees memory before the kernel has to OOM kill."""

    interval: timedelta = timedelta(seconds=1)
    cool: timedelta = timedelta(seconds=4)
    features: Sequence[str] = (feature_names.BE_MEMORY,)
    name: str = "memory-evict"
    last_eviction: datetime | None = None

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return who should leave when the node's memory is short."""
        if self.last_eviction is not None and snapshot.now - self.last_eviction < self.cool:
            return skipped("cooling down")
        return eviction_plan(snapshot, self.features, resources.MEMORY)

    def evicted(self, now: datetime) -> None:
        """Begin to cool down: at least one eviction was accepted."""
        self.last_eviction = now


def eviction_plan(snapshot: Snapshot, features: Iterable[str], resource: str) -> Plan:
    """Ask the features of one evictor in order and return their tasks."""
    capacity = resources.parse_list(snapshot.node.status.capacity) if snapshot.node else {}
    if capacity.get(resource, ZERO).sign <= 0:
        return skipped(f"the node's {resource} capacity is not known")
    pods = cache(partial(evictable_pods, snapshot))
    wanted: list[Wanted] = []
    trace: dict[str, Any] = {}
    for feature in features:
        try:
            answer = ask(feature, snapshot, pods)
        except Unusable as error:
            answer = str(error)
        if isinstance(answer, str):
            trace[feature] = {"skipped": answer}
        else:
            wanted.append(answer)
            trace[feature] = {
                "due": dict(answer.amounts),
                "reason": answer.message,
                "candidates": [pod.key for pod in answer.candidates],
            }
    return _plan(wanted, trace, snapshot.now)


def _plan(wanted: Sequence[Wanted], trace: dict[str, Any], now: datetime) -> Plan:
    leaving = {pod.uid: pod for one in wanted for pod in one.candidates if pod.terminating}
    stuck = [pod for pod in leaving.values() if pod.stuck(now)]
    pending: dict[Counted, dict[str, int]] = {}
    for pod in leaving.values():
        if not pod.stuck(now):
            for counted, amounts in released_by(pod, wanted).items():
                sums = pending.setdefault(counted, {})
                sums.update({name: sums.get(name, 0) + amount for name, amount in amounts.items()})
    tasks = tuple(_task(one, wanted) for one in wanted)
    chosen, after = planned(tasks, pending)
    short = {task.feature: missing for task in tasks if (missing := after.missing(task))}
    return Plan(
        tasks=tasks,
        pending=pending,
        notices=(*_stuck_notices(stuck), *_short_notices(short)),
        trace={
            "features": trace,
            "pending": {str(counted): amounts for counted, amounts in pending.items()},
            "victims": [f"{one.namespace}/{one.name}" for one in chosen],
            "missing": short,
        },
    )


def _task(wanted: Wanted, all_wanted: Sequence[Wanted]) -> EvictionTask:
    candidates = [
        Eviction(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            reason=REASONS.get(wanted.feature, wanted.feature),
            message=f"{wanted.feature}: {wanted.message}",
            stop_containers=wanted.feature in _STOPS_CONTAINERS,
            releases=released_by(pod, all_wanted),
        )
        for pod in wanted.candidates
        if not pod.terminating and any(amount > 0 for amount in wanted.frees(pod).values())
    ]
    return EvictionTask(
        feature=wanted.feature, counted=wanted.counted, amounts=wanted.amounts, candidates=tuple(candidates)
    )


def released_by(pod: EvictablePod, wanted: Iterable[Wanted]) -> Mapping[Counted, Amounts]:
    """Return what a pod's leaving counts for all tasks of a sync: of each resource the most that any of them sees."""
    found: dict[Counted, dict[str, int]] = {}
    for one in wanted:
        amounts = found.setdefault(one.counted, {})
        for name, amount in one.frees(pod).items():
            amounts[name] = max(amounts.get(name, 0), amount)
    return found


def _stuck_notices(pods: Iterable[EvictablePod]) -> Iterable[Notice]:
    for pod in pods:
        yield Notice(
            reason=STUCK,
            message="terminating for more than a minute beyond its grace period; no longer counted as released",
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
        )


def _short_notices(short: Mapping[str, Amounts]) -> Iterable[Notice]:
    for feature, missing in short.items():
        amounts = ", ".join(f"{amount} of {name}" for name, amount in missing.items())
        yield Notice(reason=SHORT, message=f"{feature}: {amounts} are missing and no further pod is known to free any")
