"""Old metrics lend nothing: a report that is missing or too old degrades the node to its real resources."""

from datetime import datetime, timedelta
from typing import Any

from kubetide.api.slo import NodeMetric


def degraded_reason(metric: NodeMetric, strategy: dict[str, Any], now: datetime) -> str | None:
    """Say why the metrics cannot be trusted, or None. The limit itself still counts as fresh."""
    status = metric.status
    if status.update_time is None:
        return "the node has not reported yet"
    minutes = int(strategy.get("degradeTimeMinutes") or 0)
    if now > status.update_time + timedelta(minutes=minutes):
        return f"the last report is older than {minutes} minutes"
    return None
