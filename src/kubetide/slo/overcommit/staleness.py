"""Old metrics lend nothing: a report that is missing or too old degrades the node to its real resources.

A limit may be any number that fits the configuration. Beyond what a duration can hold it means: never.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.slo import NodeMetric

_DEFAULT_WINDOW_SECONDS = 300
_LONGEST_SECONDS = 86_400 * 365_000


def degraded_reason(metric: NodeMetric, strategy: Mapping[str, Any], now: datetime) -> str | None:
    """Say why the metrics cannot be trusted, or None. The limit itself still counts as fresh."""
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
