"""What stands in for a metric that fails, if the user asked for it: its last proposal while that is young, or a count.

A stand-in holds the size or raises it. It never lowers it: not knowing is no reason to shrink.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from kubetide.hpa.annotations import Fallback
from kubetide.hpa.describe import target_text
from kubetide.hpa.evaluate import MetricResult
from kubetide.hpa.replicas import Proposal
from kubetide.hpa.stabilization import Recommendation

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
    """Return what identifies a metric across turns, its target included."""
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
