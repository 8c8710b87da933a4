"""Autoscalers at rest: a reconcile that cannot end otherwise than the last one is not worked out again.

Most autoscalers, most of the time, have the pods they had, all of them long since ready, and the size they should have:
usage is within the tolerance of the target, or they are at their minimum, or a window keeps them. Then only three
things can move: the proposal, the window of recommendations, and what the status shows. `still_at_rest` looks at
these and at nothing else, and another size ends the rest.
Whatever else differs from the last reconcile, and everything that is not plain (more than one metric, annotations, pods
that start), is left to `decide`. That is the rule: where this module has an answer, it is the one `decide` would give.
Where the status is out of date, because usage moved or the size stays for another reason, `status_at_rest` is the one
to write.

Its parts serve many autoscalers at a time: `is_unchanged`, what usage asks for (`quick.together`), `resting_on`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaStatus
from kubetide.api.values.quantity import milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.core.behavior import Rules
from kubetide.hpa.core.decide import (
    BELOW_TARGET,
    able_to_scale,
    above_target,
    metrics_of,
    scaling_limited,
    tolerance_of,
)
from kubetide.hpa.core.describe import metric_status, source_of
from kubetide.hpa.core.evaluate import all_sane
from kubetide.hpa.core.observation import (
    Conclusion,
    Memory,
    Normalized,
    Observation,
    Options,
    ScaleDecision,
    ScaleView,
    normalize,
)
from kubetide.hpa.core.pods import PodList, pod_requests
from kubetide.hpa.core.replicas import Proposal, Tolerance, Usage, raw_usage_of, rounded_up, utilization_of
from kubetide.hpa.core.samples import MetricFailure, PodReading, Sample
from kubetide.hpa.core.status import LITTLE, same_beside_metrics


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What the last reconcile rested on, and what it showed."""

    seen: Observation
    resource: str
    tolerance: Tolerance
    requests: Mapping[str, int]
    """The request of every pod, where the target is a share of it; else only their names count."""
    utilization: int | None
    average: int
    """The target: a utilization in percent, or else an average in thousandths."""
    shown: Usage | None
    """The values in the status as it is written; None where they cannot be told."""
    current: int
    side: int
    """Where the proposal was: 1 above the size, -1 below, 0 for the size itself."""
    above: str
    """Why the size should grow, where the proposal is above it."""
    rules: Rules | None
    reasons: tuple[str, str]
    """Why the window and the limits left the size as it is."""


class Asked(msgspec.Struct, frozen=True):
    """What usage asks for, and how it compares with the values in the status."""

    proposal: int
    same: bool
    """The status shows these very values."""
    near: bool
    """The status shows values that are a little off at most."""
    usage: Usage | None = None
    """The values themselves, where one autoscaler was looked at by itself."""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a reconcile at rest."""

    asked: Asked
    found: Normalized
    side: int
    """Where the proposal is now."""
    why: str
    """What the proposal asks for, in words."""

    @property
    def reasons(self) -> tuple[str, str]:
        """Why the window and the limits left the size as it is."""
        return self.found.stabilized.reason, self.found.limited.reason


def rest_of(
    seen: Observation, decision: ScaleDecision, outcome: Conclusion, options: Options, *, now: datetime
) -> Rest | None:
    """Return what the next reconcile has to find unchanged to end like this one; None where it has to decide anew.

    `seen` has the autoscaler as it is now, after the write of its status.
    """
    if decision.rescale or decision.ends or decision.problem is not None or outcome.events or outcome.events_after_save:
        return None
    if (
        seen.fallback is not None
        or seen.learned is not None
        or seen.passed_over
        or seen.announced
        or options.external_fallback
    ):
        return None
    current, hpa, start = decision.current, seen.hpa, decision.memory.after_start
    if not current or len(decision.results) != 1:
        return None
    if start is not None and not (start.looked_back and start.held is not None):
        return None
    result = decision.results[0]
    source, proposal = result.spec.resource, result.proposal
    stabilized, limited = decision.stabilized, decision.limited
    if source is None or result.spec.type != "Resource" or proposal is None or stabilized is None or limited is None:
        return None
    if result.refused or decision.proposal is None or decision.choice is None:
        return None
    if not isinstance(seen.pods, PodList) or not same_beside_metrics(hpa.status, outcome.status):
        return None
    ready, others = seen.pods.settled(source.name, options.readiness, now=now)
    if others or len(ready) != len(seen.pods):
        return None
    target = source.target
    requests: Mapping[str, int]
    try:
        if target.average_value is not None:
            utilization, average, requests = None, milli_value(target.average_value), dict.fromkeys(ready, 0)
        elif target.average_utilization is not None:
            utilization, average = target.average_utilization, 0
            requests = pod_requests(seen.pods, source.name, options.compat)
        else:
            return None
    except (QuantityError, MetricFailure):
        return None
    return Rest(
        seen=replace(seen, readings=()),
        resource=source.name,
        tolerance=tolerance_of(hpa.spec, options),
        requests=requests,
        utilization=utilization,
        average=average,
        shown=_shown(hpa),
        current=current,
        side=_side(decision.proposal, current),
        above=above_target(decision.choice),
        rules=decision.rules,
        reasons=(stabilized.reason, limited.reason),
    )


def rest_after_write(rest: Rest, resting: Resting, status: HpaStatus, hpa: HorizontalPodAutoscaler) -> Rest | None:
    """Return the same rest on an autoscaler of which only the status has changed, to this one; None if more has."""
    before = rest.seen.hpa
    if not (same_but_for_status(before, hpa) and same_beside_metrics(status, hpa.status)):
        return None
    seen = replace(rest.seen, hpa=hpa)
    return replace(rest, seen=seen, shown=_shown(hpa), side=resting.side, reasons=resting.reasons)


def same_but_for_status(before: HorizontalPodAutoscaler, hpa: HorizontalPodAutoscaler) -> bool:
    """Return whether an autoscaler is what it was, apart from its status."""
    return (
        before.spec == hpa.spec
        and before.metadata.uid == hpa.metadata.uid
        and before.metadata.generation == hpa.metadata.generation
        and before.metadata.annotations == hpa.metadata.annotations
    )


def still_at_rest(rest: Rest, seen: Observation, memory: Memory, options: Options, *, now: datetime) -> Resting | None:
    """Return how a reconcile ends that finds everything as it was, or None if it has to be decided."""
    if seen.scale is None or seen.hpa is not rest.seen.hpa or seen.passed_over or seen.fallback is not None:
        return None
    if not is_unchanged(rest, seen.scale, seen.pods, seen.claimed_by) or len(seen.readings) != 1:
        return None
    reading = seen.readings[0]
    if not isinstance(reading, PodReading) or reading.refused or reading.samples.keys() != rest.requests.keys():
        return None
    asked = ask(rest, reading.samples)
    if asked is None or (asked.proposal < rest.current and not _may_shrink(reading, options, now)):
        return None
    return resting_on(rest, asked, memory, options, now=now)


def is_unchanged(rest: Rest, scale: ScaleView, pods: Sequence[Pod], claimed_by: tuple[str, ...]) -> bool:
    """Return whether target and pods are what they were; of the autoscaler the caller knows that."""
    before = rest.seen
    return pods is before.pods and scale == before.scale and claimed_by == before.claimed_by


def ask(rest: Rest, samples: Mapping[str, Sample]) -> Asked | None:
    """Return what samples of just these pods ask for, or None where they ask for nothing."""
    try:
        if rest.utilization is None:
            usage = raw_usage_of(samples, rest.average)
        else:
            usage = utilization_of(samples, rest.requests, rest.utilization)
    except MetricFailure:
        return None
    return asked_for(rest, usage, len(samples))


def asked_for(rest: Rest, usage: Usage, count: int) -> Asked:
    """Return what the usage of so many pods asks for."""
    covered = rest.tolerance.covers(usage.ratio)
    proposal = rest.current if covered else max(0, rounded_up(usage.ratio * float(count)))
    shown = rest.shown
    if shown is None:
        return Asked(proposal, same=False, near=False, usage=usage)
    same = (shown.average, shown.utilization) == (usage.average, usage.utilization)
    return Asked(proposal, same=same, near=_near(shown, usage), usage=usage)


def resting_on(rest: Rest, asked: Asked, memory: Memory, options: Options, *, now: datetime) -> Resting | None:
    """Return how a reconcile ends that finds everything as it was but the proposal; None if that ends the rest."""
    if memory.recommendations is None:
        return None
    current, window = rest.current, options.downscale_window
    found = normalize(asked.proposal, current, memory, rest.seen.hpa.spec, rest.rules, window, now=now)
    if found.limited.replicas != current:
        return None
    side = _side(asked.proposal, current)
    return Resting(asked=asked, found=found, side=side, why=("", rest.above, BELOW_TARGET)[side])


def status_at_rest(rest: Rest, resting: Resting, options: Options, *, now: datetime) -> HpaStatus:
    """Return the status of a reconcile at rest: the usage it found, and why the size stays as it is."""
    hpa, usage, found = rest.seen.hpa, resting.asked.usage, resting.found
    assert usage is not None, "who is looked at by itself has values to show"
    spec = metrics_of(hpa.spec)[0]
    shown = Proposal(
        replicas=rest.current,
        current=rest.current,
        ratio=usage.ratio,
        value=usage.average,
        utilization=usage.utilization,
    )
    return replace(
        hpa.status,
        current_metrics=(metric_status(spec, source_of(spec), shown, options.compat),),
        conditions=scaling_limited(
            able_to_scale(hpa.status.conditions or (), found.stabilized, now), found.limited, now
        ),
    )


def has_moved(rest: Rest, resting: Resting) -> bool:
    """Return whether a value is beyond doubt so far from the one shown that its status is written at once."""
    shown, usage = rest.shown, resting.asked.usage
    if shown is None or usage is None or shown.average < 0:
        return False
    if shown.utilization is not None and usage.utilization is not None:
        moved = abs(usage.utilization - shown.utilization)
        if moved > 1 and 10 * moved > shown.utilization:
            return True
    # Less one: what somebody else wrote may have more digits.
    return 10 * (abs(usage.average - shown.average) - 1) > shown.average


def _may_shrink(reading: PodReading, options: Options, now: datetime) -> bool:
    return not options.guard or all_sane(reading, now, options.max_usage_age)


def _side(proposal: int, current: int) -> int:
    return (proposal > current) - (proposal < current)


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
