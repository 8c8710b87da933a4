"""When fresh samples are worth a reconcile: as soon as a metric leaves the band in which nothing would change.

    ratio = average usage per pod / target per pod        band = [1 - tolerance, 1 + tolerance]

The target per pod of a utilization follows from the last status: averageValue * target / averageUtilization, which is
the request of the pods times the target. What the samples ask for is not decided here; the reconcile that is woken
reads and decides as always, with its windows, limits and rules. So this may err on the side of waking.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.hpa import ContainerResourceMetricSource, HorizontalPodAutoscaler
from kubetide.api.values.quantity import quantity_float
from kubetide.errors import QuantityError

Measured = str | tuple[str, str]
"""What is measured of a pod: a resource, or of one container (its name, then) a resource."""
Amounts = Mapping[Measured, float]
"""Usage of one pod: cores, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a metric stood when its autoscaler was woken last."""

    side: int
    """-1 below the band, 0 within, 1 above."""
    ratio: float


def targets_per_pod(hpa: HorizontalPodAutoscaler) -> dict[Measured, float]:
    """Return the target of each resource metric per pod; a utilization without a status is not known yet."""
    found: dict[Measured, float] = {}
    current = dict(map(_seen, hpa.status.current_metrics or ()))
    for metric in hpa.spec.metrics or ():
        source = metric.resource or metric.container_resource
        if source is None:
            continue
        measured: Measured = source.name
        if isinstance(source, ContainerResourceMetricSource):
            measured = (source.container, source.name)
        target = source.target
        amount: float | None = None
        if target.average_value is not None:
            amount = _number(target.average_value)
        elif target.average_utilization:
            seen = current.get(measured, {})
            value, percent = _number(seen.get("averageValue")), seen.get("averageUtilization")
            amount = value * target.average_utilization / percent if value and percent else None
        if amount:
            found[measured] = amount
    return found


def _seen(entry: Mapping[str, Any]) -> tuple[Measured, Mapping[str, Any]]:
    """Return what an entry of the status measured, and the values it saw."""
    for kind in ("resource", "containerResource"):
        if isinstance(one := entry.get(kind), dict):
            name, container = str(one.get("name")), one.get("container")
            return (str(container), name) if container else name, one.get("current") or {}
    return "", {}


def position(targets: Mapping[Measured, float], usage: Iterable[Amounts], tolerance: float) -> Position | None:
    """Return where the pods stand: at the metric that asks for most; None while nothing is known of them."""
    ratios = []
    pods = list(usage)
    for measured, target in targets.items():
        amounts = [pod[measured] for pod in pods if measured in pod]
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
