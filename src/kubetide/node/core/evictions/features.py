"""The eviction features: when each of them acts, how much must go, and which pods it takes in which order.

    feature                 acts when                                              takes
    BECPUEvict              best-effort requests are not satisfied, usage high     best-effort pods
    BEMemoryEvict           the node's used memory reaches its threshold           best-effort pods of known usage
    CPUEvict, MemoryEvict   the node's usage reaches its threshold                 opted in, up to a priority
    *AllocatableEvict       batch or mid requests exceed what is allocatable now   opted in, up to a priority

Best-effort features take lower priorities first, then the higher use of requested CPU or the larger memory usage. The
others go by eviction priority, priority and sub-priority, all ascending, and then the larger amount first. All are
total orders. A pod whose usage is unknown is left alone, because it may free nothing, and so is one that holds nothing
of what is missing.

A batch or mid resource that the node does not report is unknown: the controller takes it away while its data is stale,
and that is no reason to evict a whole class. One that is reported as 0 is due as a whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.objects import resources
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import ResourceThresholdStrategy
from kubetide.api.values.quantity import ZERO
from kubetide.errors import KubetideError
from kubetide.node.core.evictions.pods import EvictablePod
from kubetide.node.core.evictions.satisfaction import BestEffortCpu, SatisfactionPolicy, release_amount
from kubetide.node.core.plan import Amounts, Counted
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, LAST
from kubetide.node.core.snapshot import Snapshot

BE_CPU, BE_MEMORY = "BECPUEvict", "BEMemoryEvict"
CPU_USAGE, MEMORY_USAGE = "CPUEvict", "MemoryEvict"
CPU_ALLOCATABLE, MEMORY_ALLOCATABLE = "CPUAllocatableEvict", "MemoryAllocatableEvict"
CPU_FEATURES = (BE_CPU, CPU_ALLOCATABLE, CPU_USAGE)
MEMORY_FEATURES = (BE_MEMORY, MEMORY_ALLOCATABLE, MEMORY_USAGE)

BY_ALLOCATABLE = "evictByAllocatable"
HIGHEST_ALLOCATABLE_PRIORITY = 7999
"""Allocatable eviction knows batch and mid pods only, whose priorities end here."""
_GAP_PERCENT = 2
"""How far below its threshold usage is brought when no lower bound is set."""


class Unusable(KubetideError):
    """A feature cannot act with the NodeSLO as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one feature wants: amounts, the pods it would take in order, and what any pod frees of them."""

    feature: str
    counted: Counted
    amounts: Amounts
    candidates: tuple[EvictablePod, ...]
    frees: Callable[[EvictablePod], Amounts]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLimits:
    """The thresholds of one feature, checked: percent at which it acts, percent it goes down to, highest priority."""

    block: ResourceThresholdStrategy
    threshold: int = 0
    lower: int = 0
    ceiling: int = 0


PodsOf = Callable[[], Sequence[EvictablePod]]
"""The pods of a sync, asked for only by who wants to evict: their values cost more than all thresholds together."""


def ask(feature: str, snapshot: Snapshot, pods: PodsOf) -> Wanted | str:
    """Return what a feature wants, or why it wants nothing; raise Unusable."""
    limits = limits_of(feature, snapshot.slo.resource_used_threshold_with_be if snapshot.slo else None)
    return _ASK[feature](feature, snapshot, limits, pods)


def switched_on(block: ResourceThresholdStrategy | None) -> bool:
    """Return the one switch of all features in the NodeSLO; raise Unusable where it is missing."""
    if block is None or block.enable is None:
        raise Unusable("the NodeSLO says nothing about best-effort work")
    return block.enable


def limits_of(feature: str, block: ResourceThresholdStrategy | None) -> EvictionLimits:
    """Return the thresholds of a feature; raise Unusable when it is off or they are not usable."""
    if block is None or not switched_on(block):
        raise Unusable("not enabled by the NodeSLO")
    if feature == BE_CPU:
        if not _satisfaction(block).valid:
            raise Unusable("the satisfaction band is missing or not usable")
        return EvictionLimits(block=block)
    ceiling = 0
    if feature in _ALLOCATABLE:
        threshold, lower = _allocatable_bounds(feature, block)
        highest = block.allocatable_evict_priority_threshold
        if highest is None or highest > HIGHEST_ALLOCATABLE_PRIORITY:
            raise Unusable("no usable allocatableEvictPriorityThreshold")
        ceiling = highest
    else:
        threshold, lower = _usage_bounds(feature, block)
        if feature != BE_MEMORY:
            highest = block.evict_enabled_priority_threshold
            if highest is None:
                raise Unusable("no evictEnabledPriorityThreshold")
            ceiling = highest
    if threshold is None or threshold < 0:
        raise Unusable("no usable threshold")
    if lower is None or lower >= threshold:
        raise Unusable("the lower bound is not below the threshold")
    return EvictionLimits(block=block, threshold=threshold, lower=lower, ceiling=ceiling)


def _usage_bounds(feature: str, block: ResourceThresholdStrategy) -> tuple[int | None, int | None]:
    if feature == CPU_USAGE:
        threshold, lower = block.cpu_evict_threshold_percent, block.cpu_evict_lower_percent
    else:
        threshold, lower = block.memory_evict_threshold_percent, block.memory_evict_lower_percent
    if lower is None and threshold is not None:
        lower = threshold - _GAP_PERCENT
    return threshold, lower


def _allocatable_bounds(feature: str, block: ResourceThresholdStrategy) -> tuple[int | None, int | None]:
    if feature == CPU_ALLOCATABLE:
        return block.cpu_allocatable_evict_threshold_percent, block.cpu_allocatable_evict_lower_percent
    return block.memory_allocatable_evict_threshold_percent, block.memory_allocatable_evict_lower_percent


def _satisfaction(block: ResourceThresholdStrategy) -> SatisfactionPolicy:
    return SatisfactionPolicy(
        lower_percent=block.cpu_evict_be_satisfaction_lower_percent,
        upper_percent=block.cpu_evict_be_satisfaction_upper_percent,
        usage_threshold_percent=block.cpu_evict_be_usage_threshold_percent,
    )


def cpu_order(pods: Iterable[EvictablePod]) -> list[EvictablePod]:
    """Return best-effort pods in the order in which BECPUEvict takes them."""
    return sorted(pods, key=lambda pod: (pod.priority or 0, -pod.used_of_request, pod.namespace, pod.name))


def memory_order(pods: Iterable[EvictablePod]) -> list[EvictablePod]:
    """Return the pods of known usage in the order in which BEMemoryEvict takes them."""
    known = [pod for pod in pods if pod.memory_used is not None]
    by_name = sorted(known, key=lambda pod: (pod.name, pod.namespace), reverse=True)
    return sorted(by_name, key=lambda pod: (pod.priority or 0, -(pod.memory_used or 0)))


def priority_order(
    pods: Iterable[EvictablePod], amount: Callable[[EvictablePod], int], feature: str, ceiling: int
) -> list[EvictablePod]:
    """Return the pods that opted in up to a priority, in the order in which they go."""
    taken = (pod for pod in pods if pod.opted_in and pod.allows(feature) and pod.priority_value <= ceiling)
    return sorted(
        taken,
        key=lambda pod: (
            pod.eviction_priority,
            pod.priority_value,
            pod.sub_priority,
            -amount(pod),
            pod.namespace,
            pod.name,
        ),
    )


def usage_due(used: int, capacity: int, *, threshold_percent: int, lower_percent: int) -> int:
    """Return the amount to free: from the used percent down to the lower bound, 0 below the threshold."""
    percent = used * 100 // capacity
    if percent < threshold_percent:
        return 0
    return capacity * (percent - lower_percent) // 100


def allocatable_due(feature: str, requested: int, allocatable: int, *, threshold: int, lower: int) -> int:
    """Return the requests to release: all when nothing is allocatable, otherwise from above the threshold down."""
    if allocatable == 0:
        return requested
    share = requested / allocatable
    if share <= threshold / 100:
        return 0
    # The two round differently in the last digit, as upstream's do.
    if feature == CPU_ALLOCATABLE:
        return int(requested - lower / 100 * allocatable)
    return int((share - lower / 100) * allocatable)


def _be_cpu(feature: str, snapshot: Snapshot, limits: EvictionLimits, pods: PodsOf) -> Wanted | str:
    collect = snapshot.collect_interval
    block = limits.block
    window = block.cpu_evict_time_window_seconds
    seconds = window if window is not None and window > collect else int(2 * collect)
    allocatable = _allocatable(snapshot).get(qos.BATCH_CPU)
    release, why = release_amount(
        _best_effort_cpu(snapshot, seconds, AVG),
        _best_effort_cpu(snapshot, 2 * collect, LAST),
        _satisfaction(block),
        window_seconds=seconds,
        collect_interval_seconds=int(collect) or 1,
        allocatable_batch_milli=allocatable,
        by_allocatable=block.cpu_evict_policy == BY_ALLOCATABLE,
    )
    if release <= 0:
        return why
    return Wanted(
        feature=feature,
        counted=Counted.REQUEST,
        amounts={qos.BATCH_CPU: release},
        candidates=tuple(cpu_order(pod for pod in pods() if pod.best_effort and pod.allows(feature))),
        frees=lambda pod: {qos.BATCH_CPU: pod.request_milli},
        message=f"best-effort CPU satisfaction is too low, {release} milli-CPU must be released",
    )


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


def _memory_usage(feature: str, snapshot: Snapshot, limits: EvictionLimits, pods: PodsOf) -> Wanted | str:
    capacity = _capacity(snapshot, resources.MEMORY)
    used = snapshot.metrics.last(kinds.NODE_MEMORY)
    if capacity <= 0 or used is None:
        return "the node's memory or its usage is not known"
    return _by_usage(feature, limits, resources.MEMORY, int(used), capacity, pods)


def _cpu_usage(feature: str, snapshot: Snapshot, limits: EvictionLimits, pods: PodsOf) -> Wanted | str:
    window = limits.block.cpu_evict_time_window_seconds
    seconds = snapshot.collect_interval if window is None else max(float(window), snapshot.collect_interval)
    used = snapshot.metrics.query(kinds.NODE_CPU, seconds=seconds).aggregate(AVG)
    capacity = _capacity(snapshot, resources.CPU)
    if capacity <= 0 or used is None:
        return "the node's CPU usage is not known"
    return _by_usage(feature, limits, resources.CPU, int(used * 1000), capacity, pods)


def _by_usage(
    feature: str,
    limits: EvictionLimits,
    resource: str,
    used: int,
    capacity: int,
    pods: PodsOf,
) -> Wanted | str:
    due = usage_due(used, capacity, threshold_percent=limits.threshold, lower_percent=limits.lower)
    percent = used * 100 // capacity
    if due <= 0:
        return f"used {percent} % of {resource}, the threshold is {limits.threshold} %"
    if resource == resources.MEMORY and pods() and all(pod.memory_used is None for pod in pods()):
        return "the usage of the pods is not known yet"  # too early to say that nobody can free any
    amount = _used_memory if resource == resources.MEMORY else _used_cpu
    if feature == BE_MEMORY:
        candidates = memory_order(pod for pod in pods() if pod.best_effort and pod.allows(feature))
    else:
        measured = (pod for pod in pods() if _measured(pod, resource))
        candidates = priority_order(measured, amount, feature, limits.ceiling)
    unit = "bytes" if resource == resources.MEMORY else "milli-CPU"
    return Wanted(
        feature=feature,
        counted=Counted.USAGE,
        amounts={resource: due},
        candidates=tuple(candidates),
        frees=lambda pod: {resource: amount(pod)},
        message=f"node {resource} {percent} % is above {limits.threshold} %, {due} {unit} must be freed",
    )


def _used_cpu(pod: EvictablePod) -> int:
    return pod.used_milli


def _used_memory(pod: EvictablePod) -> int:
    return pod.memory_used or 0


def _measured(pod: EvictablePod, resource: str) -> bool:
    return pod.memory_used is not None if resource == resources.MEMORY else pod.cpu_known


_ALLOCATABLE = {
    CPU_ALLOCATABLE: (resources.CPU, (qos.BATCH_CPU, qos.MID_CPU)),
    MEMORY_ALLOCATABLE: (resources.MEMORY, (qos.BATCH_MEMORY, qos.MID_MEMORY)),
}


def _by_allocatable(feature: str, snapshot: Snapshot, limits: EvictionLimits, pods: PodsOf) -> Wanted | str:
    kind, names = _ALLOCATABLE[feature]
    allocatable = _allocatable(snapshot)
    counted = [pod for pod in pods() if pod.priority_value <= limits.ceiling]
    due: dict[str, int] = {}
    for name in names:
        if name not in allocatable:
            continue
        requested = sum((pod.class_requests or {}).get(name, 0) for pod in counted)
        amount = allocatable_due(feature, requested, allocatable[name], threshold=limits.threshold, lower=limits.lower)
        if amount > 0:
            due[name] = amount
    if not due:
        return "requests are within what is allocatable"

    def frees(pod: EvictablePod) -> Mapping[str, int]:
        return {name: amount for name, amount in (pod.class_requests or {}).items() if name in due}

    def amount_of(pod: EvictablePod) -> int:
        return sum((pod.class_requests or {}).get(name, 0) for name in names)

    wanted = ", ".join(f"{amount} of {name}" for name, amount in due.items())
    return Wanted(
        feature=feature,
        counted=Counted.REQUEST,
        amounts=due,
        candidates=tuple(
            priority_order((pod for pod in pods() if _measured(pod, kind)), amount_of, feature, limits.ceiling)
        ),
        frees=frees,
        message=f"requests exceed {limits.threshold} % of what is allocatable, {wanted} must be released",
    )


def _capacity(snapshot: Snapshot, resource: str) -> int:
    capacity = resources.parse_list(snapshot.node.status.capacity) if snapshot.node else {}
    found = capacity.get(resource, ZERO)
    return found.milli if resource == resources.CPU else found.value


def _allocatable(snapshot: Snapshot) -> dict[str, int]:
    found = resources.parse_list(snapshot.node.status.allocatable) if snapshot.node else {}
    return {name: quantity.value for name, quantity in found.items()}


_ASK: Mapping[str, Callable[[str, Snapshot, EvictionLimits, PodsOf], Wanted | str]] = {
    BE_CPU: _be_cpu,
    BE_MEMORY: _memory_usage,
    CPU_USAGE: _cpu_usage,
    MEMORY_USAGE: _memory_usage,
    CPU_ALLOCATABLE: _by_allocatable,
    MEMORY_ALLOCATABLE: _by_allocatable,
}
