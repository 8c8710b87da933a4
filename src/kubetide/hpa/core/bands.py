"""When fresh samples are worth a reconcile: as soon as a metric leaves the band in which nothing would change.

    ratio = average usage per pod / target per pod        band = [1 - tolerance, 1 + tolerance]

The target per pod of a utilization follows from the last status: averageValue * target / averageUtilization, which is
the request of the pods times the target. What the samples ask for is not decided here; the reconcile that is woken
reads and decides as always, with its windows, limits and rules. So this may err on the side of waking.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.values.quantity import quantity_float
from kubetide.errors import QuantityError

Amounts = Mapping[str, float]
"""Usage of one pod by resource: cores, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a metric stood when its autoscaler was woken last."""

    side: int
    """-1 below the band, 0 within, 1 above."""
    ratio: float


def targets_per_pod(hpa: HorizontalPodAutoscaler) -> dict[str, float]:
    """Return the target of each resource metric per pod; a utilization without a status is not known yet."""
    found: dict[str, float] = {}
    current = {
        str(one["resource"].get("name")): one["resource"].get("current") or {}
        for one in hpa.status.current_metrics or ()
        if isinstance(one.get("resource"), dict)
    }
    for metric in hpa.spec.metrics or ():
        if metric.resource is None:
            continue
        target = metric.resource.target
        amount: float | None = None
        if target.average_value is not None:
            amount = _number(target.average_value)
        elif target.average_utilization:
            seen = current.get(metric.resource.name, {})
            value, percent = _number(seen.get("averageValue")), seen.get("averageUtilization")
            amount = value * target.average_utilization / percent if value and percent else None
        if amount:
            found[metric.resource.name] = amount
    return found


def position(targets: Mapping[str, float], usage: Iterable[Amounts], tolerance: float) -> Position | None:
    """Return where the pods stand: at the metric that asks for most; None while nothing is known of them."""
    ratios = []
    pods = list(usage)
    for resource, target in targets.items():
        amounts = [pod[resource] for pod in pods if resource in pod]
        if amounts:
            ratios.append(sum(amounts) / len(amounts) / target)
    if not ratios:
        return None
    ratio = max(ratios)
    return Position(side=(ratio > 1 + tolerance) - (ratio < 1 - tolerance), ratio=ratio)


def wakes(before: Position | None, now: Position, tolerance: float) -> bool:
    """Return whether a move is worth a reconcile: across an edge of the band, or further away by a whole tolerance."""
    if before is None or now.side != before.side:
        return now.side != 0 or before is not None
    return now.side != 0 and abs(now.ratio - before.ratio) > max(tolerance, 0.01) * before.ratio


def _number(text: Any) -> float | None:
    try:
        return None if text is None else quantity_float(text)
    except QuantityError:
        return None
