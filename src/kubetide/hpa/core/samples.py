"""From the answers of the metrics APIs to samples: whole thousandths per pod, or a list of values.

A pod's usage is the sum of its containers, each rounded up to a thousandth before it is added. A pod of which any
container lacks the resource has no sample at all: half a pod is not a small pod.

    {"cpu": "156365u"} + {"cpu": "50m"}  ->  157 + 50 = 207

An answer is never trusted to be sane. A pod with two containers of one name, or one that uses more than its node has
(`hpa.plausible`), counts as a pod without a sample, and its name and the reason are kept. What is no number (`NaN`,
infinity) or does not fit 64 bits makes the metric fail by name; what is a number but cannot be a measurement (negative,
from the future, two values for one pod) stays in the formula, as upstream has it, and is remembered as a defect
for the guard after the formula.
"""

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import repeat

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.capacity import Capacity
from kubetide.api.objects.core import Pod
from kubetide.api.objects.metrics import ContainerUsage, ExternalMetricValue, MetricValue, PodMetrics
from kubetide.api.values.quantity import QuantityText, milli_text, milli_value, nanos_as_millis
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput, QuantityError

ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""What an absent time counts as."""

DEFAULT_WINDOW = timedelta(seconds=60)
"""Window of a custom metric value that names none."""

FUTURE_ALLOWED = timedelta(minutes=5)
"""How far ahead of our clock a sample may be dated: more than clocks of one cluster drift apart."""

_LONGEST_WINDOW = 10**10
"""Seconds: three hundred years, which is as good as any longer window and still a duration."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_NOT_FINITE = {"nan", "inf", "infinity"}
_USAGE = "the {} usage of container {.name} of pod {.metadata.name}"


class ErrorKind(StrEnum):
    """Why a metric gives no proposal."""

    FETCH_FAILED = "metrics_fetch_failed"
    EMPTY = "metrics_empty"
    NO_PODS = "no_pods"
    NO_USABLE_METRICS = "no_usable_metrics"
    MISSING_REQUEST = "missing_request"
    CONTAINER_NOT_FOUND = "container_not_found"
    ZERO_REQUESTS = "zero_requests"
    INVALID_SELECTOR = "invalid_metric_selector"
    INVALID_TARGET = "invalid_target"
    UNKNOWN_TYPE = "unknown_metric_type"
    INVALID_VALUE = "invalid_value"


class MetricFailure(InvalidInput):
    """A metric gives no proposal this reconcile."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The usage of one pod in thousandths, over `window` until `timestamp`."""

    value: int
    timestamp: datetime = ZERO_TIME
    window: timedelta = DEFAULT_WINDOW


class RefusalReason(StrEnum):
    """Why a sample is not taken for a measurement; the label of the counter."""

    DUPLICATE_CONTAINER = "duplicate_container"
    ABOVE_NODE = "above_node"


class RefusedSample(msgspec.Struct, frozen=True, gc=False):
    """Why a pod counts as one without a sample."""

    reason: RefusalReason
    text: str


class PodReading(msgspec.Struct, frozen=True):
    """One sample per pod name, and the time stamp of the first item of the answer."""

    samples: Mapping[str, Sample]
    timestamp: datetime = ZERO_TIME
    defects: Mapping[str, str] = msgspec.field(default_factory=dict)
    refused: Mapping[str, RefusedSample] = msgspec.field(default_factory=dict)


class ValueReading(msgspec.Struct, frozen=True):
    """The value of an object (one) or the values of an external metric (any number), in thousandths."""

    values: tuple[int, ...]
    timestamp: datetime = ZERO_TIME
    measured: tuple[tuple[datetime, timedelta], ...] = ()
    """When each value was measured and over which window, where that is known."""

    @property
    def usage(self) -> int:
        """The sum; one that would leave 64 bits stays at their end, and what follows no longer counts."""
        total = 0
        for value in self.values:
            total += value
            if total > INT64_MAX:
                return INT64_MAX
        return total


Reading = PodReading | ValueReading | MetricFailure


def only_pods(reading: Reading, names: Container[str]) -> Reading:
    """Return a reading per pod without the samples of other pods; a reading of values stays."""
    if not isinstance(reading, PodReading):
        return reading
    return replace(
        reading,
        samples={name: sample for name, sample in reading.samples.items() if name in names},
        refused={name: sample for name, sample in reading.refused.items() if name in names},
    )


def resource_reading(items: Sequence[PodMetrics], resource: str, container: str = "") -> PodReading:
    """Return the usage of `resource` per pod, of one container if named. The items are already selected."""
    if not items:
        raise MetricFailure(ErrorKind.EMPTY, "the resource metrics API has no sample of these pods")
    if not container and (plain := _plain_samples(items, resource)) is not None:
        return PodReading(plain, items[0].timestamp or ZERO_TIME)
    samples: dict[str, Sample] = {}
    defects: dict[str, str] = {}
    refused: dict[str, RefusedSample] = {}
    for item in items:
        containers: Sequence[ContainerUsage] = item.containers or ()
        if len(containers) > 1 and (twice := repeated(containers)):
            name = item.metadata.name
            text = f"the sample of pod {name} has container {twice} more than once"
            refused[name] = RefusedSample(RefusalReason.DUPLICATE_CONTAINER, text)
            continue
        if container:
            containers = [one for one in containers if one.name == container][:1]
        value = 0
        for one in containers:
            usage = one.usage
            if not usage or resource not in usage:
                break
            written = usage[resource]
            try:
                amount = milli_value(written)
            except QuantityError as error:
                raise _unreadable(written, _USAGE.format(resource, one, item), error) from error
            if not INT64_MIN <= amount <= INT64_MAX:
                raise _out_of_range(written, _USAGE.format(resource, one, item))
            value += amount
        else:
            if containers:
                name = item.metadata.name
                if name in samples:
                    _note_duplicate(samples, defects, name, value)
                samples[name] = Sample(value, item.timestamp or ZERO_TIME, window_of(item.window))
    for name in refused:
        samples.pop(name, None)
    return PodReading(samples, items[0].timestamp or ZERO_TIME, defects, refused)


def plain_amounts(items: Sequence[PodMetrics], resource: str) -> list[int] | None:
    """Return the CPU usage of pods of one container each, in plain nanos; None where each has to be looked at."""
    if resource != "cpu":
        return None  # nothing else is written in nanos
    try:
        texts = [one.usage[resource] for item in items for (one,) in (item.containers,)]  # type: ignore[index,misc]
        return nanos_as_millis(texts)  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError):  # no usage, more or fewer containers, another resource, a number
        return None


def _plain_samples(items: Sequence[PodMetrics], resource: str) -> dict[str, Sample] | None:
    """Return what most lists come to without a look at each sample: different pods, one window, plain amounts."""
    amounts = plain_amounts(items, resource)
    if amounts is None or len({item.window for item in items}) != 1:
        return None
    names, times = [item.metadata.name for item in items], [item.timestamp or ZERO_TIME for item in items]
    samples = dict(zip(names, map(Sample, amounts, times, repeat(window_of(items[0].window))), strict=False))
    return samples if len(samples) == len(items) else None


def pods_reading(items: Sequence[MetricValue]) -> PodReading:
    """Return a custom metric per pod; of two entries for one pod the later one counts."""
    if not items:
        raise MetricFailure(ErrorKind.EMPTY, "the custom metrics API has no value for these pods")
    samples: dict[str, Sample] = {}
    defects: dict[str, str] = {}
    for item in items:
        name = item.described_object.name
        value = _milli(item.value, "the value of pod {}", name)
        _note_duplicate(samples, defects, name, value)
        samples[name] = Sample(value, item.timestamp or ZERO_TIME, _window_seconds(item))
    return PodReading(samples, items[0].timestamp or ZERO_TIME, defects)


def object_reading(items: Sequence[MetricValue]) -> ValueReading:
    """Return the one value of a described object."""
    if len(items) != 1:
        raise MetricFailure(
            ErrorKind.FETCH_FAILED, f"the custom metrics API returned {len(items)} values where one was asked for"
        )
    item = items[0]
    value = _milli(item.value, "the value of the object")
    return ValueReading((value,), item.timestamp or ZERO_TIME, _measured(items))


def external_reading(items: Sequence[ExternalMetricValue]) -> ValueReading:
    """Return all values of an external metric."""
    if not items:
        raise MetricFailure(ErrorKind.EMPTY, "the external metrics API has no value of this metric")
    values = tuple(_milli(item.value, "value {}", position) for position, item in enumerate(items))
    return ValueReading(values, items[0].timestamp or ZERO_TIME, _measured(items))


def fits_64_bits(number: int) -> bool:
    """Return whether a number is one that Kubernetes can count with."""
    return INT64_MIN <= number <= INT64_MAX


def is_future(timestamp: datetime, now: datetime) -> bool:
    """Return whether a sample is dated so far ahead that it cannot be a measurement."""
    return timestamp > now + FUTURE_ALLOWED


@lru_cache(maxsize=1024)
def window_of(text: str) -> timedelta:
    """Return a Go duration such as `30s`, `1m0s` or `15.2s`."""
    if not text:
        return timedelta(0)
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise MetricFailure(ErrorKind.FETCH_FAILED, f"window {text[:40]!r} is not a duration") from error


def _milli(text: QuantityText, what: str, *names: object) -> int:
    """Return a value in thousandths; what it is the value of is spelt out only if it cannot be read."""
    try:
        value = milli_value(text)
    except QuantityError as error:
        raise _unreadable(text, what.format(*names), error) from error
    if not INT64_MIN <= value <= INT64_MAX:
        raise _out_of_range(text, what.format(*names))
    return value


def _unreadable(text: QuantityText, what: str, error: QuantityError) -> MetricFailure:
    if str(text).strip().lstrip("+-").lower() in _NOT_FINITE:
        return MetricFailure(ErrorKind.INVALID_VALUE, f"{what} is {text}, which is not a finite number")
    return MetricFailure(ErrorKind.FETCH_FAILED, f"{what} cannot be read: {error}")


def _out_of_range(text: QuantityText, what: str) -> MetricFailure:
    return MetricFailure(ErrorKind.INVALID_VALUE, f"{what} is {str(text)[:40]}, which is out of range")


def repeated(containers: Sequence[ContainerUsage]) -> str:
    """Return the name of a container that occurs more than once; empty if none does."""
    if len(containers) == 2:  # most pods with more than one
        first, second = containers
        return first.name if first.name == second.name else ""
    names = [one.name for one in containers]
    if len(set(names)) == len(names):
        return ""
    return next(name for name in names if names.count(name) > 1)


def _measured(items: Sequence[MetricValue | ExternalMetricValue]) -> tuple[tuple[datetime, timedelta], ...]:
    return tuple([(item.timestamp, _window_seconds(item)) for item in items if item.timestamp is not None])


def _window_seconds(item: MetricValue | ExternalMetricValue) -> timedelta:
    seconds = item.window_seconds
    if seconds is None and isinstance(item, MetricValue):
        seconds = item.window
    if seconds is None:
        return DEFAULT_WINDOW
    return timedelta(seconds=max(-_LONGEST_WINDOW, min(seconds, _LONGEST_WINDOW)))


def _note_duplicate(samples: Mapping[str, Sample], defects: dict[str, str], name: str, value: int) -> None:
    earlier = samples.get(name)
    if earlier is not None and earlier.value != value:
        defects[name] = f"pod {name} appears more than once with different values"


# Usage that no node can deliver: a pod that seems to use more than its node has counts as one without a sample.


def without_impossible(reading: PodReading, resource: str, pods: Sequence[Pod], capacity: Capacity) -> PodReading:
    """Return a reading of resource usage without the samples that are above what the pod's node has."""
    least = capacity.smallest.get(resource)
    if least is None or max([sample.value for sample in reading.samples.values()], default=0) <= least:
        return reading
    nodes = {pod.metadata.name: pod.spec.node_name for pod in pods}
    refused: dict[str, RefusedSample] = {}
    for name, sample in reading.samples.items():
        bound = capacity.bound(nodes.get(name, ""), resource)
        if bound is not None and sample.value > bound:
            has = f"node {nodes[name]} has" if nodes.get(name) in capacity.nodes else "the largest node has"
            text = f"the {resource} usage of pod {name} is {milli_text(sample.value)}, {has} {milli_text(bound)}"
            refused[name] = RefusedSample(RefusalReason.ABOVE_NODE, text)
    if not refused:
        return reading
    kept = {name: sample for name, sample in reading.samples.items() if name not in refused}
    return replace(reading, samples=kept, refused={**reading.refused, **refused})
