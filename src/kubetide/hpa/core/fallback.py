"""What stands in for a metric that fails, if the user asked for it.

    kubetide.io/hpa-fallback   the last proposal while it is young, or a count, never below the present size
    external.fallback          its `replicas`, like any other proposal, once it failed for `failureDurationSeconds`

The field is a proposal to Kubernetes (KEP-5679) that no release has yet; it counts only where a setting says so, and
the annotation wins over it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from kubetide.api.objects.hpa import ExternalMetricFallback
from kubetide.hpa.core.annotations import Fallback
from kubetide.hpa.core.describe import target_text
from kubetide.hpa.core.evaluate import MetricResult
from kubetide.hpa.core.replicas import Proposal
from kubetide.hpa.core.stabilization import Recommendation
from kubetide.hpa.core.status import Conditions, shown_time, with_condition

CONDITION = "ExternalMetricFallbackActive"
SHORTEST_FAILURE = timedelta(seconds=180)

LastGood = Mapping[str, Recommendation]


def stand_in(
    results: Sequence[MetricResult], fallback: Fallback | None, last: LastGood, current: int, *, now: datetime
) -> tuple[MetricResult, ...]:
    """Return the results with failed ones replaced where something stands in for them."""
    if fallback is None:
        return tuple(results)
    return tuple(
        result if result.failure is None else _replaced(result, fallback, last.get(key_of(result)), current, now)
        for result in results
    )


def remember_good(results: Sequence[MetricResult], last: LastGood, now: datetime) -> LastGood:
    """Return what each metric said when it last worked; metrics that are gone are forgotten."""
    kept: dict[str, Recommendation] = {}
    for result in results:
        key = key_of(result)
        if result.proposal is not None and result.failure is None:
            kept[key] = Recommendation(max(0, result.proposal.replicas), now)
        elif key in last:
            kept[key] = last[key]
    return kept


def key_of(result: MetricResult) -> str:
    """Return what identifies a metric across reconciles, its target included."""
    return f"{result.type}/{result.description}/{target_text(result.spec)}"


def _replaced(
    result: MetricResult, fallback: Fallback, last: Recommendation | None, current: int, now: datetime
) -> MetricResult:
    if fallback.count is not None:
        count, rule = fallback.count, f"fallback: {fallback.count} replicas, as annotated"
    elif last is not None and now - last.at <= fallback.max_age:
        count, rule = last.replicas, f"fallback: last known good proposal of {last.replicas} at {last.at:%H:%M:%S}"
    else:
        return result
    proposal = Proposal(replicas=max(count, current), current=current, ratio=1.0, value=0, rule=rule)
    return replace(result, proposal=proposal)


# The proposed field: a metric that has failed for long enough proposes what its spec says.

FirstFailures = Mapping[str, datetime]


def remember_failures(results: Sequence[MetricResult], first: FirstFailures, now: datetime) -> FirstFailures:
    """Return since when each external metric with a fallback has failed without a success in between."""
    return {
        key_of(result): first.get(key_of(result), now)
        for result in results
        if result.failure is not None and _stated(result) is not None
    }


def stand_in_by_spec(
    results: Sequence[MetricResult], first: FirstFailures, current: int, *, now: datetime
) -> tuple[MetricResult, ...]:
    """Return the results with those replaced that failed for too long by their spec, each with its fallback status."""
    return tuple(_replaced_by_spec(result, first.get(key_of(result)), current, now) for result in results)


def fallback_condition(conditions: Conditions, results: Sequence[MetricResult], now: datetime) -> Conditions:
    """Return the conditions with the one that shows whether a fallback is in force, where any metric has one."""
    stated = [result for result in results if _stated(result) is not None]
    if not stated:
        return conditions
    active = [result for result in stated if result.failure is not None and result.proposal is not None]
    return with_condition(
        conditions,
        CONDITION,
        holds=bool(active),
        reason="FallbackActive" if active else "AllMetricsNormal",
        message=f"{active[0].description} proposes its fallback" if active else "no external metric is in fallback",
        now=now,
    )


def _stated(result: MetricResult) -> ExternalMetricFallback | None:
    external = result.spec.external
    return external.fallback if external is not None and result.type == "External" else None


def _replaced_by_spec(result: MetricResult, since: datetime | None, current: int, now: datetime) -> MetricResult:
    stated = _stated(result)
    if stated is None:
        return result
    if result.failure is None or since is None:
        return _with_status(result, {"fallbackStatus": "Normal"})
    shown = {"fallbackStatus": "Normal", "firstFailureTime": shown_time(since)}
    duration = max(timedelta(seconds=stated.failure_duration_seconds), SHORTEST_FAILURE)
    if now - since < duration or stated.replicas < 1:
        return _with_status(result, shown)
    rule = f"fallback: {stated.replicas} replicas, as the metric says for failures of {duration.total_seconds():.0f} s"
    proposal = Proposal(replicas=stated.replicas, current=current, ratio=1.0, value=0, rule=rule)
    return replace(_with_status(result, shown | {"fallbackStatus": "Fallback"}), proposal=proposal)


def _with_status(result: MetricResult, more: dict[str, Any]) -> MetricResult:
    shown = result.status.get("external") or {"metric": {"name": _name(result)}, "current": {}}
    return replace(result, status={**result.status, "external": {**shown, **more}})


def _name(result: MetricResult) -> str:
    return result.spec.external.metric.name if result.spec.external is not None else ""
