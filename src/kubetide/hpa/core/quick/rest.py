"""Autoscalers at rest: a reconcile that cannot end otherwise than the last one is not worked out again.

Most autoscalers, most of the time, have the pods they had, all of them long since ready, and usage within the tolerance
of the target. Then only three things can move: the usage ratio, the window of recommendations, and the values shown in
the status. `still_at_rest` looks at these and at nothing else. Whatever else differs from the last reconcile, and
everything that is not plain (more than one metric, `behavior`, annotations, pods that start), is left to `decide`. That
is the rule: where this module has an answer, it is the one that `decide` would give.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.values.quantity import milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.core.behavior import DESIRED_WITHIN_RANGE
from kubetide.hpa.core.decide import tolerance_of
from kubetide.hpa.core.observation import Conclusion, Memory, Observation, Options, ScaleDecision
from kubetide.hpa.core.pods import PodList, pod_requests
from kubetide.hpa.core.replicas import Tolerance, Usage, raw_usage_of, utilization_of
from kubetide.hpa.core.samples import MetricFailure, PodReading
from kubetide.hpa.core.stabilization import READY_FOR_NEW_SCALE, stabilize
from kubetide.hpa.core.status import LITTLE, same_beside_metrics


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What the last reconcile rested on, and what it showed."""

    seen: Observation
    tolerance: Tolerance
    requests: Mapping[str, int]
    """The request of every pod, where the target is a share of it; else only their names count."""
    utilization: int | None
    average: int
    """The target: a utilization in percent, or else an average in thousandths."""
    shown: Usage | None
    """The values in the status as it is written; None where they cannot be told."""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a reconcile at rest."""

    memory: Memory
    same_values: bool
    """The status shows these very values."""
    near_values: bool
    """The status shows values that are a little off at most."""


def rest_of(
    seen: Observation, decision: ScaleDecision, outcome: Conclusion, options: Options, *, now: datetime
) -> Rest | None:
    """Return what the next reconcile has to find unchanged to end like this one; None where it has to decide anew."""
    if decision.rescale or decision.ends or decision.problem is not None or outcome.events or outcome.events_after_save:
        return None
    if seen.fallback is not None or seen.learned is not None or seen.passed_over or options.external_fallback:
        return None
    current, hpa, start = decision.current, seen.hpa, decision.memory.after_start
    if not current or decision.rules is not None or len(decision.results) != 1:
        return None
    if start is not None and not (start.looked_back and start.held is not None):
        return None
    result = decision.results[0]
    source, proposal = result.spec.resource, result.proposal
    stabilized, limited = decision.stabilized, decision.limited
    if source is None or result.spec.type != "Resource" or proposal is None or stabilized is None or limited is None:
        return None
    if not proposal.replicas == stabilized.replicas == limited.replicas == current or result.refused:
        return None
    if stabilized.reason != READY_FOR_NEW_SCALE or limited.reason != DESIRED_WITHIN_RANGE:
        return None
    if not isinstance(seen.pods, PodList) or not same_beside_metrics(hpa.status, outcome.status):
        return None
    ready, others = seen.pods.settled(source.name, options.readiness, now=now)
    if others or len(ready) != len(seen.pods):
        return None
    target = source.target
    try:
        if target.average_value is not None:
            utilization, average, requests = None, milli_value(target.average_value), dict.fromkeys(ready, 0)
        elif target.average_utilization is not None:
            utilization, average = target.average_utilization, 0
            requests = dict(pod_requests(seen.pods, source.name, options.compat))
        else:
            return None
    except (QuantityError, MetricFailure):
        return None
    return Rest(
        seen=replace(seen, readings=()),
        tolerance=tolerance_of(hpa.spec, options),
        requests=requests,
        utilization=utilization,
        average=average,
        shown=_shown(hpa),
    )


def still_at_rest(rest: Rest, seen: Observation, memory: Memory, options: Options, *, now: datetime) -> Resting | None:
    """Return how a reconcile ends that finds everything as it was, or None if it has to be decided."""
    before = rest.seen
    if seen.hpa is not before.hpa or seen.pods is not before.pods or seen.scale != before.scale:
        return None
    if seen.claimed_by != before.claimed_by or seen.passed_over or seen.fallback is not None or len(seen.readings) != 1:
        return None
    reading = seen.readings[0]
    if not isinstance(reading, PodReading) or reading.refused or reading.samples.keys() != rest.requests.keys():
        return None
    if seen.scale is None or memory.recommendations is None:
        return None
    try:
        if rest.utilization is None:
            usage = raw_usage_of(reading.samples, rest.average)
        else:
            usage = utilization_of(reading.samples, rest.requests, rest.utilization)
    except MetricFailure:
        return None
    current = seen.scale.replicas
    if not rest.tolerance.covers(usage.ratio):
        return None
    start, window = memory.after_start, options.downscale_window
    held = start.held_for(current, window, now=now, edge_counts=True) if start is not None else None
    stabilized = stabilize(current, memory.recommendations, window, now=now, held=held)
    if stabilized.replicas != current:
        return None
    shown = rest.shown
    return Resting(
        memory=replace(memory.letting_go(held), recommendations=stabilized.recommendations),
        same_values=shown is not None and (shown.average, shown.utilization) == (usage.average, usage.utilization),
        near_values=shown is not None and _near(shown, usage),
    )


def _near(shown: Usage, usage: Usage) -> bool:
    """Return whether values are closer than a status may be off; at the very edge `decide` has the word."""
    if abs(usage.average - shown.average) >= LITTLE * abs(shown.average):
        return False
    if shown.utilization is None or usage.utilization is None:
        return shown.utilization is usage.utilization
    return abs(usage.utilization - shown.utilization) < max(LITTLE * shown.utilization, 1)


def _shown(hpa: HorizontalPodAutoscaler) -> Usage | None:
    """Return the values of the one resource metric that a status shows."""
    metrics = hpa.status.current_metrics or ()
    try:
        current = metrics[0]["resource"]["current"]
        return Usage(0.0, milli_value(current["averageValue"]), current.get("averageUtilization"))
    except (IndexError, KeyError, TypeError, QuantityError):
        return None
