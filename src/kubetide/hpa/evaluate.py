"""One metric of an autoscaler: which target it has, what it is called, what it proposes, what its status shows.

| type                        | counts with      | target                                        |
|-----------------------------|------------------|-----------------------------------------------|
| Resource, ContainerResource | spec.replicas    | averageValue, else averageUtilization         |
| Pods                        | spec.replicas    | averageValue                                  |
| Object                      | Value: spec.replicas, AverageValue: status.replicas | by its type        |
| External                    | averageValue: status.replicas, value: spec.replicas | averageValue first |

A metric that fails is a result like any other: it keeps its place, its reason and its message.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from kubetide.api.core import Pod
from kubetide.api.hpa import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    MetricSpec,
    MetricType,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kubetide.api.quantity import QuantityText, milli_text, milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.describe import Source, describe, metric_status, source_of
from kubetide.hpa.events import FAILED_METRIC_REASONS, Reason
from kubetide.hpa.metrics import Tolerance
from kubetide.hpa.pods import ReadinessRules, group_pods
from kubetide.hpa.replicas import Proposal, propose_average, propose_raw, propose_utilization, propose_value
from kubetide.hpa.rollout import held_back
from kubetide.hpa.samples import (
    FUTURE_ALLOWED,
    ZERO_TIME,
    ErrorKind,
    MetricFailure,
    PodReading,
    Reading,
    Sample,
    ValueReading,
    fits_64_bits,
    is_future,
)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What metrics are measured against: the size of the target and its pods."""

    replicas: int
    """`spec.replicas` of the scale."""
    observed: int
    """`status.replicas` of the scale."""
    pods: Sequence[Pod]
    passed_over: frozenset[str] = frozenset()
    """Pods that a rollout adds for a while and that are not to be counted."""
    wraps: bool = False
    """Counts beyond 32 bits come out as in the reference."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a proposal to shrink must not be acted on."""

    reason: Reason
    text: str


class MetricResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one metric says in one turn."""

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
    target: Target,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    *,
    now: datetime,
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
        proposal = _propose(spec, source, reading, everyone, tolerance, readiness, now)
        if target.passed_over:
            aware = _proposal_without(spec, source, reading, target, tolerance, readiness, now)
            proposal = held_back(proposal, aware, target.replicas)
        status = metric_status(spec, source, proposal)
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
    if text := _bad_value(proposal, reading, now):
        return Defect(Reason.INVALID_METRIC_VALUE, text)
    if max_age and (text := _old_value(proposal, reading, now, max_age)):
        return Defect(Reason.INVALID_METRIC_STALE, text)
    if proposal.multiplier == 0:
        return Defect(Reason.INVALID_METRIC_NO_READY_PODS, "no pod is ready, so the ratio has nothing to multiply")
    return None


def _bad_value(proposal: Proposal, reading: Reading, now: datetime) -> str:
    if isinstance(reading, ValueReading):
        bad = [value for value in reading.values if value < 0]
        if bad:
            return f"it has a negative value ({milli_text(bad[0])})"
        return "it is dated in the future" if is_future(reading.timestamp, now) else ""
    if isinstance(reading, PodReading):
        samples, defects, latest = reading.samples, reading.defects, now + FUTURE_ALLOWED
        if not defects and _all_sane(samples.values(), latest):
            return ""
        for name in proposal.used:
            sample = samples[name]
            if sample.value < 0:
                return f"the sample of pod {name} is negative ({milli_text(sample.value)})"
            if sample.timestamp > latest:
                return f"the sample of pod {name} is dated in the future"
            if name in defects:
                return defects[name]
    return ""


def _old_value(proposal: Proposal, reading: Reading, now: datetime, max_age: timedelta) -> str:
    """Say what a proposal rests on that is older than its window and `max_age` allow; a time that is absent is not."""
    if isinstance(reading, ValueReading):
        times = [(now - at, max(window, timedelta(0))) for at, window in reading.measured]
        return next((f"it is {_age_text(age, window)}" for age, window in times if age - window > max_age), "")
    if isinstance(reading, PodReading):
        samples = reading.samples
        if now - min([sample.timestamp for sample in samples.values()], default=now) <= max_age:
            return ""
        for name in proposal.used:
            sample = samples[name]
            age = now - sample.timestamp
            if sample.timestamp != ZERO_TIME and age - max(sample.window, timedelta(0)) > max_age:
                return f"the sample of pod {name} is {_age_text(age, sample.window)}"
    return ""


def _age_text(age: timedelta, window: timedelta) -> str:
    return f"{round(age.total_seconds())} s old, with a window of {round(window.total_seconds())} s"


def _all_sane(samples: Collection[Sample], latest: datetime) -> bool:
    values, times = [sample.value for sample in samples], [sample.timestamp for sample in samples]
    return min(values, default=0) >= 0 and max(times, default=latest) <= latest


def _proposal_without(
    spec: MetricSpec,
    source: Source,
    reading: Reading,
    target: Target,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    now: datetime,
) -> Proposal | None:
    """Propose without the pods of a rollout; None if nothing can be said without them."""
    try:
        return _propose(spec, source, reading, target, tolerance, readiness, now)
    except MetricFailure:
        return None


def _propose(
    spec: MetricSpec,
    source: Source,
    reading: Reading,
    target: Target,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    now: datetime,
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
                    wraps=target.wraps,
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
                wraps=target.wraps,
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
                wraps=target.wraps,
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
        return propose_average(values, target=amount, observed=target.observed, tolerance=tolerance, wraps=target.wraps)
    return propose_value(
        values,
        target.pods,
        target=_milli(source.target.value),
        current=target.replicas,
        tolerance=tolerance,
        wraps=target.wraps,
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
