"""From samples to a proposed replica count: one formula per kind of metric.

Per pod (`utilization`, `raw`), with `r` the usage ratio over the pods that count:

1. No pod missing, and no unready pod while r > 1: within tolerance keep the size, else `ceil(r x ready pods)`.
2. Otherwise unknown pods are filled in against the direction of `r`: missing pods use nothing when growing and their
   target (utilization: at least their request) when shrinking; unready pods use nothing when growing. The ratio over
   the filled samples decides, and only if it still points the same way and does not overshoot the other way.

Per object (`value`): `ceil(usage / target x Ready pods)`; from zero replicas `ceil(usage / target)`.
Per replica (`average`): `ceil(usage / target)`, with the tolerance measured at the observed number of replicas.

Every function returns what it computed on the way, so that a person can follow it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.objects.meta import controller_of
from kubetide.hpa.core.pods import PodGroups, count_ready, pod_requests, ready_condition
from kubetide.hpa.core.samples import INT64_MAX, ZERO_TIME, ErrorKind, MetricFailure, PodReading, Sample, ValueReading

# How far usage is from its target: the usage ratio, in exactly the arithmetic that decides replica counts.

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How far from 1.0 a ratio may be without any reaction, in either direction."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        """Return whether the ratio is close enough to 1.0; both ends count, NaN does not."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Usage(msgspec.Struct, frozen=True):
    """A ratio, and the numbers that people see for it."""

    ratio: float
    average: int
    utilization: int | None = None


def utilization_of(samples: Mapping[str, Sample], requests: Mapping[str, int], target: int) -> Usage:
    """Return the percentage of the requests that is used, over the pods that have both."""
    if samples.keys() != requests.keys():
        both = samples.keys() & requests.keys()
        samples = {name: samples[name] for name in both}
        requests = {name: requests[name] for name in both}
    used, requested = sum([sample.value for sample in samples.values()]), sum(requests.values())
    if requested == 0:
        raise MetricFailure(ErrorKind.ZERO_REQUESTS, _REQUEST_NOTHING if samples else _OTHER_PODS)
    percent = truncated(used * 100, requested)
    return Usage(divided(percent, target), truncated(used, len(samples)), percent)


def raw_usage_of(samples: Mapping[str, Sample], target: int) -> Usage:
    """Return the average of all samples against a target amount."""
    average = truncated(sum([sample.value for sample in samples.values()]), len(samples))
    return Usage(divided(average, target), average)


def truncated(number: int, divisor: int) -> int:
    """Divide whole numbers and drop the fraction, also below zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


def divided(number: float, divisor: float) -> float:
    """Divide as doubles; by zero gives infinity, or NaN for zero itself."""
    number, divisor = float(number), float(divisor)
    if divisor:
        return number / divisor
    return math.copysign(math.inf, number) if number else math.nan


def rounded_up(value: float) -> int:
    """Round up to a replica count within 32 bits: what is beyond them becomes the nearest end.

    NaN is no count at all: 0.
    """
    if INT32_MIN <= value <= INT32_MAX:
        return math.ceil(value)
    if math.isnan(value):
        return 0
    return INT32_MAX if value > 0 else INT32_MIN


_NOTHING = Sample(0)
_REQUEST_NOTHING = "the pods that have samples request nothing"
_OTHER_PODS = "no pod of the target has a sample yet: the samples are of pods that are gone"


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """The count that one metric asks for, the figures it reports, and how it came about."""

    replicas: int
    current: int
    """The count that the formula started from."""
    ratio: float
    value: int
    """Average, or total for `value` targets, in thousandths."""
    utilization: int | None = None
    timestamp: datetime = ZERO_TIME
    groups: PodGroups | None = None
    filled_ratio: float | None = None
    multiplier: int | None = None
    """The number of pods that multiplied the ratio; None where none did."""
    used: tuple[str, ...] = ()
    """Names of the samples that the formula used, without what was filled in; empty where samples have no names."""
    rule: str = ""


def propose_utilization(
    reading: PodReading,
    pods: Sequence[Pod],
    groups: PodGroups,
    *,
    resource: str,
    container: str = "",
    target: int,
    current: int,
    tolerance: Tolerance,
    compat: HpaCompat,
) -> Proposal:
    """Propose for a target in percent of the requests."""
    samples = _usable(reading, groups, pods)
    requests = pod_requests(pods, resource, compat, container)

    def ratio_of(filled: Mapping[str, Sample]) -> Usage:
        return utilization_of(filled, requests, target)

    fill = {name: Sample(requests[name] * max(100, target) // 100) for name in groups.missing}
    return _propose_per_pod(reading, samples, groups, ratio_of, fill, current, tolerance)


def propose_raw(
    reading: PodReading,
    pods: Sequence[Pod],
    groups: PodGroups,
    *,
    target: int,
    current: int,
    tolerance: Tolerance,
) -> Proposal:
    """Propose for a target amount per pod."""
    samples = _usable(reading, groups, pods)

    def ratio_of(filled: Mapping[str, Sample]) -> Usage:
        return raw_usage_of(filled, target)

    fill = {name: Sample(target) for name in groups.missing}
    return _propose_per_pod(reading, samples, groups, ratio_of, fill, current, tolerance)


def propose_value(
    reading: ValueReading,
    pods: Sequence[Pod],
    *,
    target: int,
    current: int,
    tolerance: Tolerance,
    passed_over: frozenset[str] = frozenset(),
) -> Proposal:
    """Propose for a total that all pods share."""
    usage = reading.usage
    ratio = divided(usage, target)
    base = Proposal(replicas=current, current=current, ratio=ratio, value=usage)
    if current == 0:
        return _with(base, rounded_up(ratio), "from zero: the ratio itself")
    if tolerance.covers(ratio):
        return _with(base, current, "within tolerance")
    ready = count_ready(pods, passed_over=passed_over)
    count = rounded_up(ratio * float(ready))
    return _with(base, count, "ratio times Ready pods", multiplier=ready)


def propose_average(
    reading: ValueReading, *, target: int, observed: int, tolerance: Tolerance, summed: bool = False
) -> Proposal:
    """Propose for an amount per replica; `observed` is the number of replicas that the scale reports.

    A usage that was `summed` up to the end of its range is shown as that: an average of it would look like a value.
    """
    usage = reading.usage
    ratio = divided(usage, float(target) * float(observed))
    # Nothing can be averaged over no replicas: then the usage itself is shown.
    whole = not observed or (summed and float(usage) >= float(INT64_MAX))
    average = usage if whole else _ceil(divided(usage, observed))
    base = Proposal(replicas=observed, current=observed, ratio=ratio, value=average, timestamp=reading.timestamp)
    if tolerance.covers(ratio):
        return _with(base, observed, "within tolerance")
    return _with(base, rounded_up(divided(usage, target)), "usage divided by target")


def _usable(reading: PodReading, groups: PodGroups, pods: Sequence[Pod]) -> Mapping[str, Sample]:
    """Return the samples without those of ignored and unready pods."""
    if not pods:
        raise MetricFailure(ErrorKind.NO_PODS, "the selector matches no pod")
    samples = reading.samples
    if groups.ignored or groups.unready:
        without = {*groups.ignored, *groups.unready}
        samples = {name: sample for name, sample in samples.items() if name not in without}
    if not samples:
        if reading.refused:
            first = next(iter(reading.refused.values())).text
            raise MetricFailure(ErrorKind.NO_USABLE_METRICS, f"no pod has a sample that can be true: {first}")
        raise MetricFailure(ErrorKind.NO_USABLE_METRICS, "only pods that are unready or going away have samples")
    return samples


def _propose_per_pod(
    reading: PodReading,
    samples: Mapping[str, Sample],
    groups: PodGroups,
    usage_of: Callable[[Mapping[str, Sample]], Usage],
    missing_at_target: Mapping[str, Sample],
    current: int,
    tolerance: Tolerance,
) -> Proposal:
    usage = usage_of(samples)
    ratio = usage.ratio
    base = Proposal(
        replicas=current,
        current=current,
        ratio=ratio,
        value=usage.average,
        utilization=usage.utilization,
        timestamp=reading.timestamp,
        groups=groups,
        used=tuple(samples),
    )
    grows_with_unready = bool(groups.unready) and ratio > 1.0
    if not grows_with_unready and not groups.missing:
        if tolerance.covers(ratio):
            return _with(base, current, "within tolerance")
        count = rounded_up(ratio * float(groups.ready))
        return _with(base, count, "ratio times ready pods", multiplier=groups.ready)

    filled = dict(samples)
    if ratio < 1.0:
        filled.update(missing_at_target)
    elif ratio > 1.0:
        filled.update((name, _NOTHING) for name in groups.missing)
    if grows_with_unready:
        filled.update((name, _NOTHING) for name in groups.unready)
    second = usage_of(filled).ratio
    base = replace(base, filled_ratio=second)
    if tolerance.covers(second):
        return _with(base, current, "within tolerance once unknown pods are filled in")
    if (ratio < 1.0 < second) or (second < 1.0 < ratio):
        return _with(base, current, "unknown pods turn the direction around")
    count = rounded_up(second * float(len(filled)))
    if (second < 1.0 and count > current) or (second > 1.0 and count < current):
        return _with(base, current, "the count would go against the ratio")
    return _with(base, count, "filled ratio times filled samples", multiplier=len(filled))


def _with(base: Proposal, replicas: int, rule: str, *, multiplier: int | None = None) -> Proposal:
    return replace(base, replicas=replicas, rule=rule, multiplier=multiplier)


def _ceil(value: float) -> int:
    return math.ceil(value) if math.isfinite(value) else 0


# Pods that a rolling update adds for a while, and how they are kept from moving the target. Off unless asked for.
#
# While a rollout runs there are more pods than the target wants: surge pods, pods that terminate, pods that warm up and
# burn CPU for no load. The formula takes them all as if they were there to stay. With this rule it is asked twice, once
# with all pods and once without those, and the answer that changes less counts:
#
#     grows    ->  max(current, min(with all, without them))
#     shrinks  ->  min(current, max(with all, without them))
#
# So the rule can only hold back; it never moves a target that the plain formula would leave alone.

WARM_UP = timedelta(seconds=60)
"""How long a pod of a rollout counts as warming after it became Ready: the length of a usual sample window."""


def rollout_pods(pods: Sequence[Pod], replicas: int, *, now: datetime) -> frozenset[str]:
    """Return the names of pods that are only there because of a rollout; none if there is no rollout."""
    living = [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"]
    owners = {owner.uid for pod in living if (owner := controller_of(pod.metadata)) is not None}
    if len(owners) < 2 and len(living) <= replicas:
        return frozenset()
    passed = {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is not None}
    passed.update(pod.metadata.name for pod in living if _is_warming(pod, now))
    steady = [pod for pod in living if pod.metadata.name not in passed]
    if len(steady) > replicas:
        # The youngest are the surge: the others were there before the rollout.
        steady.sort(key=lambda pod: (pod.status.start_time or now, pod.metadata.name))
        passed.update(pod.metadata.name for pod in steady[max(replicas, 1) :])
    if len(passed) == len(pods):
        return frozenset()
    return frozenset(passed)


def held_back(plain: Proposal, aware: Proposal | None, current: int) -> Proposal:
    """Return the proposal that changes less; without a second answer, none that changes anything."""
    other = current if aware is None else aware.replicas
    if plain.replicas > current:
        count = max(current, min(plain.replicas, other))
    else:
        count = min(current, max(plain.replicas, other))
    if count == plain.replicas:
        return plain
    return replace(plain, replicas=count, rule=f"{plain.rule}; held back during a rollout (otherwise {plain.replicas})")


def _is_warming(pod: Pod, now: datetime) -> bool:
    condition = ready_condition(pod)
    if condition is None or not condition.is_true:
        return True
    return now - (condition.last_transition_time or ZERO_TIME) < WARM_UP
