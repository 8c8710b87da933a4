"""From an estimate to the sizes of a row: headroom, what the HPA needs, floors, ceilings, node, quota, limits.

Every rule that changes a size leaves a note, in the order in which the rules apply. Sizes are whole millicores and
whole MiB, rounded up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from kubetide.api.values.quantity import readable_bytes
from kubetide.recommend.core.estimators import Maker, minimum
from kubetide.recommend.core.workloads import NOTHING, Bounds, Container, Sizes, Usage, Workload
from kubetide.vpa.core.policy import CPU, MEMORY

MIB = 2**20
_NO_BOUNDS = Bounds()


class LimitPolicy(StrEnum):
    """What becomes of limits when requests change."""

    KEEP = "keep"
    RATIO = "ratio"
    NONE = "none"
    MEMORY_EQUALS_REQUEST = "memory-equals-request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How rows are made."""

    estimator: str = "vpa"
    headroom: float = 0.0
    floor: Sizes = NOTHING
    ceiling: Sizes = NOTHING
    limits: LimitPolicy = LimitPolicy.KEEP
    keep_qos: bool = False
    estimators: Mapping[str, Maker] = field(default_factory=dict)
    """Estimators beside the built-in ones."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What a container should request, and why that differs from the estimate."""

    sizes: Sizes
    needed: Sizes
    """What usage asks for, before minimums and bounds: a request below these alone is no risk."""
    notes: list[str]


def sized(
    estimate: tuple[float, float], workload: Workload, container: Container, usage: Usage | None, options: Options
) -> Sized:
    """Return the sizes of a container from what its estimator says; `within` has what is about room."""
    notes: list[str] = []
    result: dict[str, int | None] = {}
    needed: dict[str, int | None] = {}
    if options.keep_qos and all(one.requests == one.limits == NOTHING for one in workload.containers):
        return Sized(NOTHING, NOTHING, ["no requests: QoS class BestEffort is kept"])
    if workload.utilization is None:
        notes.append("HPAs could not be read: one with a utilization target would add pods if requests shrink")
    targets = workload.utilization_of(container.name)
    least = minimum(options.estimator, len(workload.containers), options.estimators)
    for resource, raw, bottom in zip((CPU, MEMORY), estimate, least, strict=True):
        if not np.isfinite(raw):
            result[resource] = needed[resource] = None
            continue
        amount = (raw * 1000.0 if resource == CPU else raw) * (1.0 + options.headroom)
        percent = targets.get(resource)
        if percent:
            # Without samples what is estimated stands for what pods use on average, which is less.
            used = _per_pod(usage, resource) if usage is not None else raw * (1000.0 if resource == CPU else 1.0)
            fitting = used * 100.0 / percent
            text = f"HPA targets {percent} % of {resource}: "
            if usage is None:
                amount = max(amount, fitting)
                notes.append(f"{text}sized for it by the estimate, as there are no samples: an upper bound")
            elif fitting > amount:
                amount = fitting
                notes.append(f"{text}sized so that the pods of today meet the target")
            else:
                notes.append(f"{text}the pods of today meet it with this request")
        amount = float(_whole(resource, amount))
        needed[resource] = int(amount)
        if amount < bottom:
            notes.append(f"{resource} raised from {spelt(resource, int(amount))}: least size of the recommender")
            amount = float(_whole(resource, bottom))
        for limit, chosen, why in ((options.floor, max, "floor"), (options.ceiling, min, "ceiling")):
            bound = _of(limit, resource)
            if bound is not None and chosen(amount, float(bound)) != amount:
                amount = float(bound)
                notes.append(f"{resource} held at {spelt(resource, bound)}: {why}")
        result[resource] = int(amount)
    return Sized(Sizes(result[CPU], result[MEMORY]), Sizes(needed[CPU], needed[MEMORY]), notes)


@dataclass(slots=True)
class Planned:
    """What one container should request, before and after it was asked whether there is room for it."""

    workload: Workload
    container: Container
    sizes: Sizes | None
    """None where nothing is recommended; it keeps what it has."""
    notes: list[str]
    needed: Sizes = NOTHING
    """What usage asks for."""
    held: Sizes = NOTHING
    """What it was held at."""

    def hold(self, resource: str, amount: int, why: str) -> None:
        """Recommend no more than this."""
        assert self.sizes is not None
        self.sizes = _with(self.sizes, resource, amount)
        self.held = _with(self.held, resource, amount)
        self.notes.append(f"{resource} held at {spelt(resource, amount)}: {why}")


def within(planned: Sequence[Planned], bounds: Mapping[str, Bounds]) -> None:
    """Hold what there is no room for: a pod fits a node as a whole, and all workloads of a namespace its quota."""
    pods: dict[tuple[str, ...], list[Planned]] = {}
    namespaces: dict[tuple[str, str], list[Planned]] = {}
    for each in planned:
        owner = each.workload
        pods.setdefault((owner.cluster, owner.namespace, owner.kind, owner.name), []).append(each)
        namespaces.setdefault((owner.cluster, owner.namespace), []).append(each)
    for resource in (CPU, MEMORY):
        for (cluster, *_), mine in pods.items():
            _fit_node(resource, mine, _of(bounds.get(cluster, _NO_BOUNDS).largest_node, resource))
        for (cluster, namespace), mine in namespaces.items():
            left = bounds.get(cluster, _NO_BOUNDS).quota_left.get(namespace, NOTHING)
            _fit_quota(resource, mine, _of(left, resource), namespace)


def _fit_node(resource: str, pod: Sequence[Planned], node: int | None) -> None:
    """Divide what the largest node has as the recommendations are to each other."""
    growing = [each for each in pod if each.sizes is not None and _of(each.sizes, resource) is not None]
    fixed = sum(_of(each.container.requests, resource) or 0 for each in pod if each not in growing)
    wanted = sum(_wanted(each, resource) for each in growing)
    if node is None or fixed + wanted <= node or not wanted:
        return
    for each in growing:
        share = max(0, node - fixed) * _wanted(each, resource) / wanted
        why = "largest node" if len(pod) == 1 else f"all {len(pod)} containers have to fit the largest node"
        each.hold(resource, _whole_below(resource, share), why)


def _fit_quota(resource: str, neighbours: Sequence[Planned], left: int | None, namespace: str) -> None:
    """Divide what a quota leaves as the workloads want to grow; what others would give back does not count yet."""
    wanted = [
        (each, growth * max(1, each.workload.replicas))
        for each in neighbours
        if each.sizes is not None
        and (growth := _wanted(each, resource) - (_of(each.container.requests, resource) or 0)) > 0
    ]
    total = sum(growth for _, growth in wanted)
    if left is None or total <= left:
        return
    for each, growth in wanted:
        old = _of(each.container.requests, resource) or 0
        more = max(0, left) * growth / total / max(1, each.workload.replicas)
        amount = max(old, _whole_below(resource, old + more))
        shared = "" if len(wanted) == 1 else f", divided among {len(wanted)} containers that need more"
        each.hold(resource, amount, f"the quota of {namespace} leaves no more{shared}")


def _wanted(planned: Planned, resource: str) -> int:
    return (_of(planned.sizes, resource) or 0) if planned.sizes is not None else 0


def _with(sizes: Sizes, resource: str, amount: int) -> Sizes:
    return replace(sizes, **{"cpu_millis" if resource == CPU else "memory_bytes": amount})


def _whole_below(resource: str, amount: float) -> int:
    return max(1, int(amount)) if resource == CPU else max(1, int(amount / MIB)) * MIB


def limits_for(container: Container, requests: Sizes, options: Options) -> tuple[Sizes, list[str]]:
    """Return the limits that go with new requests, and what had to change."""
    notes: list[str] = []
    found: dict[str, int | None] = {}
    guaranteed = options.keep_qos and container.requests == container.limits and None not in _pair(container.limits)
    for resource in (CPU, MEMORY):
        old, limit = _of(container.requests, resource), _of(container.limits, resource)
        new = _of(requests, resource)
        if new is None:
            found[resource] = limit
        elif guaranteed:
            found[resource] = new
        elif options.limits is LimitPolicy.NONE:
            found[resource] = None
        elif options.limits is LimitPolicy.MEMORY_EQUALS_REQUEST and resource == MEMORY:
            found[resource] = new
        elif options.limits is LimitPolicy.RATIO and limit is not None and old:
            found[resource] = _whole(resource, new * (limit / old))
        elif limit is not None and limit < new:
            found[resource] = new
            notes.append(f"{resource} limit raised to the request")
        else:
            found[resource] = limit
    if guaranteed:
        notes.append("limits equal requests: QoS class Guaranteed is kept")
    return Sizes(found[CPU], found[MEMORY]), notes


def spelt(resource: str, amount: int | None) -> str:
    """Return an amount as a manifest has it."""
    if amount is None:
        return "-"
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    for unit, size in (("Gi", 2**30), ("Mi", MIB), ("Ki", 1024)):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def short(resource: str, amount: int | None) -> str:
    """Return an amount for a table: never longer than a column."""
    if amount is None:
        return "-"
    return spelt(CPU, amount) if resource == CPU else readable_bytes(amount)


def _per_pod(usage: Usage, resource: str) -> float:
    """Return p90 over time of what pods use on average: what the HPA compares with its target."""
    samples = usage.cpu * 1000.0 if resource == CPU else usage.memory
    there = np.isfinite(samples)
    count = there.sum(axis=1)
    means = np.sort(np.where(there, samples, 0.0).sum(axis=1)[count > 0] / count[count > 0])
    return float(means[max(0, int(np.ceil(0.9 * means.size)) - 1)]) if means.size else 0.0


def _whole(resource: str, amount: float) -> int:
    if resource == CPU:
        return max(1, int(np.ceil(amount - 1e-6)))
    return max(1, int(np.ceil(amount / MIB - 1e-9))) * MIB


def _of(sizes: Sizes, resource: str) -> int | None:
    return sizes.cpu_millis if resource == CPU else sizes.memory_bytes


def _pair(sizes: Sizes) -> tuple[int | None, int | None]:
    return sizes.cpu_millis, sizes.memory_bytes
