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
        proposal = _propose(source, reading, everyone, tolerance, readiness, now, compat)
        if target.passed_over:
            try:
                aware = _propose(source, reading, target, tolerance, readiness, now, compat)
            except MetricFailure:
                aware = None  # nothing can be said without the pods of the rollout
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
    elif isinstance(reading, PodReading) and not all_sane(reading, now, max_age):
        defect = _sample_defect(proposal, reading, now, max_age)
    else:
        defect = None
    if defect is None and proposal.multiplier == 0:
        return Defect(Reason.INVALID_METRIC_NO_READY_PODS, "no pod is ready, so the ratio has nothing to multiply")
    return defect


def all_sane(reading: PodReading, now: datetime, max_age: timedelta) -> bool:
    """Return at a glance whether every sample can be true and is young; a look at each is needed if not."""
    samples = reading.samples.values()
    values, times = [sample.value for sample in samples], [sample.timestamp for sample in samples]
    if reading.defects or min(values, default=0) < 0:
        return False
    return is_recent(min(times, default=now), max(times, default=now), now, max_age)


def is_recent(oldest: datetime, newest: datetime, now: datetime, max_age: timedelta) -> bool:
    """Return whether all samples between these are young, and none is dated in the future."""
    return newest <= now + FUTURE_ALLOWED and (not max_age or now - oldest <= max_age)


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


def _propose(
    source: Source,
    reading: Reading,
    target: TargetState,
    tolerance: Tolerance,
    readiness: ReadinessRules,
    now: datetime,
    compat: HpaCompat,
) -> Proposal:
    if isinstance(source, ObjectMetricSource | ExternalMetricSource):
        return _propose_total(source, reading, target, tolerance)
    assert isinstance(reading, PodReading), "a metric of pods is read per pod"
    pods, wanted = target.pods, source.target
    resource = "" if isinstance(source, PodsMetricSource) else source.name
    groups = group_pods(pods, reading.samples, resource, readiness, now=now, passed_over=target.passed_over)
    if isinstance(source, PodsMetricSource) or wanted.average_value is not None:
        amount = _milli(wanted.average_value)
        return propose_raw(reading, pods, groups, target=amount, current=target.replicas, tolerance=tolerance)
    if wanted.average_utilization is None:
        raise MetricFailure(ErrorKind.INVALID_TARGET, "neither a utilization nor an average value is set")
    return propose_utilization(
        reading,
        pods,
        groups,
        resource=resource,
        container=source.container if isinstance(source, ContainerResourceMetricSource) else "",
        target=wanted.average_utilization,
        current=target.replicas,
        tolerance=tolerance,
        compat=compat,
    )


def _propose_total(
    source: ObjectMetricSource | ExternalMetricSource, reading: Reading, target: TargetState, tolerance: Tolerance
) -> Proposal:
    wanted, external = source.target, isinstance(source, ExternalMetricSource)
    average = wanted.average_value is not None and (external or wanted.type == "AverageValue")
    if not average and (wanted.value is None or not (external or wanted.type == "Value")):
        wrong = "neither a value nor an average value is set"
        raise MetricFailure(
            ErrorKind.INVALID_TARGET, wrong if external else "the target's type does not name a value that is set"
        )
    assert isinstance(reading, ValueReading), "a metric of an object is read as values"
    amount = _milli(wanted.average_value if average else wanted.value)
    if average:
        return propose_average(reading, target=amount, observed=target.observed, tolerance=tolerance, summed=external)
    return propose_value(
        reading,
        target.pods,
        target=amount,
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
