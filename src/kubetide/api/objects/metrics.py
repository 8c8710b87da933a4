"""Answers of the three metrics APIs: resource usage, custom and external metric values."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.meta import ApiObject, ObjectReference, TypedObject
from kubetide.api.values.quantity import QuantityText
from kubetide.api.values.selectors import LabelSelector


class ContainerUsage(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    usage: ResourceList | None = None


class PodMetrics(TypedObject, frozen=True, kw_only=True, gc=False):
    timestamp: datetime | None = None
    window: str = ""
    """A Go duration, such as `30s` or `1m0s`."""
    containers: tuple[ContainerUsage, ...] | None = None


class UsageColumns(msgspec.Struct, frozen=True, eq=False):
    """What a list of `PodMetrics` of one scrape says, for readers in the process of the server: a column each."""

    names: Sequence[str]
    """The same object as long as the same pods are listed, as are the labels."""
    labels: Sequence[Mapping[str, str] | None]
    timestamp: datetime
    window: str
    millis: Callable[[str], list[int] | None]
    """Usage of a resource in thousandths, every container rounded up; None where each sample has to be looked at."""
    containers: Sequence[tuple[int, str]]
    """Where in `names` the pod of each container stands, and its own name; the same object as long as the names are."""
    amounts: Callable[[], tuple[list[int], list[int]] | None]
    """Millicores and bytes of each container, rounded up; None as above."""
    items: Callable[[], bytes]
    """The `PodMetrics` themselves, as a JSON list."""


class UsagePages(dict[str, UsageColumns]):
    """Columns by namespace."""


class MemoryRunsOut(ApiObject, frozen=True, kw_only=True, gc=False):
    """A container whose memory will soon reach its limit."""

    need_bytes: int = 0
    limit_bytes: int = 0
    growth_bytes_per_second: float = 0.0
    pressure_ratio: float | None = None
    limit_hits: int | None = None


class ContainerSignal(ApiObject, frozen=True, kw_only=True, gc=False):
    """What a node knows of a container beyond its usage. None: it does not say."""

    name: str = ""
    memory_need_bytes: int | None = None
    cpu_peak_nanocores: int | None = None
    cpu_throttled_ratio: float | None = None
    memory_alarm: MemoryRunsOut | None = None


class PodSignals(TypedObject, frozen=True, kw_only=True, gc=False):
    """`podsignals` of kubetide's metrics server."""

    timestamp: datetime | None = None
    containers: tuple[ContainerSignal, ...] | None = None


class MetricIdentifier(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    selector: LabelSelector | None = None


class MetricValue(ApiObject, frozen=True, kw_only=True, gc=False):
    """One value of a custom metric; v1beta2 names it in `metric`, v1beta1 in `metricName` and `selector`."""

    described_object: ObjectReference = ObjectReference()
    metric: MetricIdentifier | None = None
    metric_name: str = ""
    timestamp: datetime | None = None
    window_seconds: int | None = None
    window: int | None = None
    """Seconds, as v1beta1 calls `windowSeconds`."""
    value: QuantityText = "0"
    selector: LabelSelector | None = None


class ExternalMetricValue(ApiObject, frozen=True, kw_only=True, gc=False):
    metric_name: str = ""
    metric_labels: dict[str, str] | None = None
    timestamp: datetime | None = None
    window_seconds: int | None = None
    value: QuantityText = "0"
