"""What an overcommit calculation says about one resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.quantity import Quantity

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
BATCH_RESOURCES = (BATCH_CPU, BATCH_MEMORY)
MID_RESOURCES = (MID_CPU, MID_MEMORY)


@dataclass(frozen=True, slots=True)
class ResourceItem:
    """An amount for the node, amounts for its zones, or the word that the resource must go (`reset`)."""

    name: str
    quantity: Quantity | None = None
    zones: Mapping[str, Quantity] = field(default_factory=dict)
    reset: bool = False
    message: str = ""


def resets(names: tuple[str, ...], message: str) -> tuple[ResourceItem, ...]:
    """Return the items that take resources away."""
    return tuple(ResourceItem(name, reset=True, message=message) for name in names)


# Nothing is overcommitted on old metrics: a report that is missing or too old degrades the node to its real resources.

_DEFAULT_WINDOW_SECONDS = 300
_LONGEST_SECONDS = 86_400 * 365_000


def degraded_reason(metric: NodeMetric, strategy: Mapping[str, Any], now: datetime) -> str | None:
    """Return why the metrics cannot be trusted, or None. The limit itself still counts as fresh."""
    status = metric.status
    if status.update_time is None:
        return "the node has not reported yet"
    if now - status.update_time > degrade_time(strategy):
        return f"the last report is older than {strategy.get('degradeTimeMinutes') or 0} minutes"
    return None


def degrade_time(strategy: Mapping[str, Any]) -> timedelta:
    """Return how old a report may be."""
    return _seconds(60 * int(strategy.get("degradeTimeMinutes") or 0))


def update_time_threshold(strategy: Mapping[str, Any]) -> timedelta:
    """Return the time after which small drifts are written too."""
    return _seconds(int(strategy.get("updateTimeThresholdSeconds") or 0))


def aggregation_window(strategy: Mapping[str, Any]) -> timedelta:
    """Return the time over which the node's usage is averaged."""
    return _seconds(int(strategy.get("metricAggregateDurationSeconds") or _DEFAULT_WINDOW_SECONDS))


def _seconds(seconds: int) -> timedelta:
    return timedelta(seconds=max(min(seconds, _LONGEST_SECONDS), -_LONGEST_SECONDS))
