"""One metric of an autoscaler: which target it has, what it is called, what it proposes, what its status shows.

| type                        | counts with      | target                                        |
|-----------------------------|------------------|-----------------------------------------------|
| Resource, ContainerResource | spec.replicas    | averageValue, else averageUtilization         |
| Pods                        | spec.replicas    | averageValue                                  |
| Object                      | Value: spec.replicas, AverageValue: status.replicas | by its type        |
| External                    | averageValue: status.replicas, value: spec.replicas | averageValue first |

A metric that fails is a result like any other: it keeps its place, its reason and its message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    MetricSpec,
    MetricType,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.values.quantity import QuantityText, milli_text, milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.core.describe import Source, describe, metric_status, source_of
from kubetide.hpa.core.events import FAILED_METRIC_REASONS, Reason
from kubetide.hpa.core.pods import ReadinessRules, group_pods
from kubetide.hpa.core.replicas import (
    Proposal,
    Tolerance,
    held_back,
    propose_average,
    propose_raw,
    propose_utilization,
    propose_value,
)
from kubetide.hpa.core.samples import (
    FUTURE_ALLOWED,
    ZERO_TIME,
    ErrorKind,
    MetricFailure,
    PodReading,
    Reading,
    ValueReading,
    fits_64_bits,
    is_future,
)


class TargetState(msgspec.Struct, frozen=True, kw_only=True):
    """What metrics are measured against: the size of the target and its pods."""

    replicas: int
    """`spec.replicas` of the scale."""
    observed: int
    """`status.replicas` of the scale."""
    pods: Sequence[Pod]
    passed_over: frozenset[str] = frozenset()
    """Pods that a rollout adds for a while and that are not to be counted."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a proposal to shrink must not be acted on."""

    reason: Reason
    text: str


class MetricResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one metric says in one reconcile."""

    spec: MetricSpec
    description: str
    status: dict[str, Any]
    proposal: Proposal | None = None
    defect: Defect | None = None
    refused: tuple[str, ...] = ()
    """Samples that were not counted because they cannot be true, in words."""
    failure: MetricFailure | None = None
    reason: str = ""
    """Why it failed, as event and condition have it."""

    @property
    def type(self) -> str:
        return self.spec.type


def evaluate(
    spec: MetricSpec,
    reading: Reading,
    target: TargetState,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    *,
    now: datetime,
    compat: HpaCompat,
    max_age: timedelta = timedelta(0),
) -> MetricResult:
    """Return what a metric proposes, or how it failed. With a `max_age` usage that is older is a defect."""
    description = describe(spec)
    refused = tuple([one.text for one in reading.refused.values()]) if isinstance(reading, PodReading) else ()
    try:
        source = source_of(spec)
        if isinstance(reading, MetricFailure):
            raise reading
        everyone = replace(target, passed_over=frozenset()) if target.passed_over else target
        proposal = _propose(spec, source, reading, everyone, tolerance, readiness, now, compat)
        if target.passed_over:
            aware = _proposal_without(spec, source, reading, target, tolerance, readiness, now, compat)
            proposal = held_back(proposal, aware, target.replicas)
        status = metric_status(spec, source, proposal, compat)
    except MetricFailure as failure:
        return MetricResult(
            spec=spec,
            description=description,
            status={"type": spec.type},
            refused=refused,
            failure=failure,
            reason=_failure_reason(spec, failure),
        )
    return MetricResult(
        spec=spec,
        description=description,
        status=status,
        proposal=proposal,
        refused=refused,
        defect=find_defect(proposal, reading, now, max_age),
    )


def find_defect(
    proposal: Proposal, reading: Reading, now: datetime, max_age: timedelta = timedelta(0)
) -> Defect | None:
    """Return what is wrong with the input of a proposal: invalid values, then old ones, then a count of zero pods."""
    if isinstance(reading, ValueReading):
        defect = _value_defect(reading, now, max_age)
    elif isinstance(reading, PodReading) and not _all_sane(reading, now, max_age):
        defect = _sample_defect(proposal, reading, now, max_age)
    else:
        defect = None
    if defect is None and proposal.multiplier == 0:
        return Defect(Reason.INVALID_METRIC_NO_READY_PODS, "no pod is ready, so the ratio has nothing to multiply")
    return defect


def _all_sane(reading: PodReading, now: datetime, max_age: timedelta) -> bool:
    """Return at a glance whether every sample can be true and is young; a look at each is needed if not."""
    samples = reading.samples.values()
    values, times = [sample.value for sample in samples], [sample.timestamp for sample in samples]
    return (
        not reading.defects
        and min(values, default=0) >= 0
        and max(times, default=now) <= now + FUTURE_ALLOWED
        and (not max_age or now - min(times, default=now) <= max_age)
    )


def _value_defect(reading: ValueReading, now: datetime, max_age: timedelta) -> Defect | None:
    bad = [value for value in reading.values if value < 0]
    if bad:
        return Defect(Reason.INVALID_METRIC_VALUE, f"it has a negative value ({milli_text(bad[0])})")
    if is_future(reading.timestamp, now):
        return Defect(Reason.INVALID_METRIC_VALUE, "it is dated in the future")
    for at, window in reading.measured:
        if _is_old(at, window, now, max_age):
            return Defect(Reason.INVALID_METRIC_STALE, f"it is {_age_text(now - at, window)}")
    return None


def _sample_defect(proposal: Proposal, reading: PodReading, now: datetime, max_age: timedelta) -> Defect | None:
    used = [(name, reading.samples[name]) for name in proposal.used]
    for name, sample in used:
        text = ""
        if sample.value < 0:
            text = f"the sample of pod {name} is negative ({milli_text(sample.value)})"
        elif is_future(sample.timestamp, now):
            text = f"the sample of pod {name} is dated in the future"
        elif name in reading.defects:
            text = reading.defects[name]
        if text:
            return Defect(Reason.INVALID_METRIC_VALUE, text)
    for name, sample in used:
        if _is_old(sample.timestamp, sample.window, now, max_age):
            text = f"the sample of pod {name} is {_age_text(now - sample.timestamp, sample.window)}"
            return Defect(Reason.INVALID_METRIC_STALE, text)
    return None


def _is_old(at: datetime, window: timedelta, now: datetime, max_age: timedelta) -> bool:
    """Return whether usage is older than its window and `max_age` allow; of one that says no time nobody knows."""
    return bool(max_age) and at != ZERO_TIME and now - at - max(window, timedelta(0)) > max_age


def _age_text(age: timedelta, window: timedelta) -> str:
    return f"{round(age.total_seconds())} s old, with a window of {round(window.total_seconds())} s"


def _proposal_without(
    spec: MetricSpec,
    source: Source,
    reading: Reading,
    target: TargetState,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    now: datetime,
    compat: HpaCompat,
) -> Proposal | None:
    """Propose without the pods of a rollout; None if nothing can be said without them."""
    try:
        return _propose(spec, source, reading, target, tolerance, readiness, now, compat)
    except MetricFailure:
        return None


def _propose(
    spec: MetricSpec,
    source: Source,
    reading: Reading,
    target: TargetState,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    now: datetime,
    compat: HpaCompat,
) -> Proposal:
    match source:
        case ResourceMetricSource() | ContainerResourceMetricSource():
            samples = _pod_reading(reading)
            groups = group_pods(
                target.pods, samples.samples, source.name, readiness, now=now, passed_over=target.passed_over
            )
            if source.target.average_value is not None:
                amount = _milli(source.target.average_value)
                return propose_raw(
                    samples,
                    target.pods,
                    groups,
                    target=amount,
                    current=target.replicas,
                    tolerance=tolerance,
                )
            if source.target.average_utilization is None:
                raise MetricFailure(ErrorKind.INVALID_TARGET, "neither a utilization nor an average value is set")
            return propose_utilization(
                samples,
                target.pods,
                groups,
                resource=source.name,
                container=source.container if isinstance(source, ContainerResourceMetricSource) else "",
                target=source.target.average_utilization,
                current=target.replicas,
                tolerance=tolerance,
                compat=compat,
            )
        case PodsMetricSource():
            samples = _pod_reading(reading)
            groups = group_pods(target.pods, samples.samples, "", readiness, now=now, passed_over=target.passed_over)
            amount = _milli(source.target.average_value)
            return propose_raw(
                samples,
                target.pods,
                groups,
                target=amount,
                current=target.replicas,
                tolerance=tolerance,
            )
        case ObjectMetricSource():
            average = source.target.type == "AverageValue" and source.target.average_value is not None
            if not average and not (source.target.type == "Value" and source.target.value is not None):
                raise MetricFailure(ErrorKind.INVALID_TARGET, "the target's type does not name a value that is set")
        case ExternalMetricSource():
            average = source.target.average_value is not None
            if not average and source.target.value is None:
                raise MetricFailure(ErrorKind.INVALID_TARGET, "neither a value nor an average value is set")
    values = _value_reading(reading)
    if average:
        amount = _milli(source.target.average_value)
        return propose_average(
            values,
            target=amount,
            observed=target.observed,
            tolerance=tolerance,
            summed=isinstance(source, ExternalMetricSource),
        )
    return propose_value(
        values,
        target.pods,
        target=_milli(source.target.value),
        current=target.replicas,
        tolerance=tolerance,
        passed_over=target.passed_over,
    )


def _failure_reason(spec: MetricSpec, failure: MetricFailure) -> str:
    if failure.kind is ErrorKind.INVALID_VALUE:
        return Reason.INVALID_METRIC_VALUE.value
    try:
        return FAILED_METRIC_REASONS[MetricType(spec.type)].value
    except ValueError:
        return Reason.INVALID_METRIC_SOURCE_TYPE.value


def _milli(text: QuantityText | None) -> int:
    if text is None:
        raise MetricFailure(ErrorKind.INVALID_TARGET, "no average value is set")
    try:
        amount = milli_value(text)
    except QuantityError as error:
        raise MetricFailure(ErrorKind.INVALID_TARGET, f"the target: {error}") from error
    if not fits_64_bits(amount):
        raise MetricFailure(ErrorKind.INVALID_TARGET, f"the target of {str(text)[:40]} is out of range")
    return amount


def _pod_reading(reading: Reading) -> PodReading:
    assert isinstance(reading, PodReading), "a metric of pods is read per pod"
    return reading


def _value_reading(reading: Reading) -> ValueReading:
    assert isinstance(reading, ValueReading), "a metric of an object is read as values"
    return reading
