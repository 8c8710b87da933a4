"""From an estimate to the sizes of a row: headroom, what the HPA needs, floors, ceilings, node, quota, limits.

Every rule that changes a size leaves a note, in the order in which the rules apply. Sizes are whole millicores and
whole MiB, rounded up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from kubetide.api.values.quantity import readable_bytes
from kubetide.recommend.core.estimators import Maker
from kubetide.recommend.core.workloads import NOTHING, Bounds, Container, Sizes, Usage, Workload
from kubetide.vpa.core.policy import CPU, MEMORY

MIB = 2**20


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


def sized(
    estimate: tuple[float, float],
    workload: Workload,
    container: Container,
    usage: Usage | None,
    options: Options,
    bounds: Bounds,
) -> tuple[Sizes, list[str]]:
    """Return what a container should request, and why it differs from the estimate."""
    notes: list[str] = []
    result: dict[str, int | None] = {}
    for resource, raw in zip((CPU, MEMORY), estimate, strict=True):
        if not np.isfinite(raw):
            result[resource] = None
            continue
        amount = (raw * 1000.0 if resource == CPU else raw) * (1.0 + options.headroom)
        percent = workload.utilization.get(resource)
        if percent and usage is not None:
            needed = _per_pod(usage, resource) * 100.0 / percent
            if needed > amount:
                amount = needed
                notes.append(f"HPA targets {percent} % of {resource}: sized so that the pods of today meet the target")
        amount = float(_whole(resource, amount))
        for limit, chosen, why in (
            (options.floor, max, "floor"),
            (options.ceiling, min, "ceiling"),
            (bounds.largest_node, min, "largest node"),
        ):
            bound = _of(limit, resource)
            if bound is not None and chosen(amount, float(bound)) != amount:
                amount = float(bound)
                notes.append(f"{resource} held at {spelt(resource, bound)}: {why}")
        result[resource] = _within_quota(resource, int(amount), workload, container, bounds, notes)
    return Sizes(result[CPU], result[MEMORY]), notes


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


def _within_quota(
    resource: str, amount: int, workload: Workload, container: Container, bounds: Bounds, notes: list[str]
) -> int:
    left = _of(bounds.quota_left.get(workload.namespace, Sizes()), resource)
    old = _of(container.requests, resource) or 0
    pods = max(1, workload.replicas)
    if left is None or (amount - old) * pods <= left:
        return amount
    held = max(old, old + max(0, left) // pods)
    notes.append(f"{resource} held at {spelt(resource, held)}: the quota of {workload.namespace} leaves no more")
    return held


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
