"""kubetide's own counters, gauges and histograms. ("Metrics" always means the usage of the cluster.)

Nothing is global: each process makes one `Telemetry` and passes it to its components, so that several components,
or several simulated processes in one test, never share a number by accident. Asking twice for the same name returns
the same instrument.

While decisions are traced, a latency remembers the trace it was last seen in, by bucket: an exemplar. Only OpenMetrics
can show them, so that page is served where tracing is on and the scraper asks for it, under the same names.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from kubetide import tracing

# Upstream exposes no `_created` series; dashboards and alerts made for them should see the same names.
disable_created_metrics()  # type: ignore[no-untyped-call]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text"


class Counts(Collector):
    """How often something happened, by labels: plain numbers, made into samples when somebody asks.

    For what happens in every reconcile of thousands of objects: a counter of the library takes five calls and a lock.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: defaultdict[tuple[str, ...], int] = defaultdict(int)

    def show(self, *labels: str) -> None:
        """Show these labels from now on, also while nothing has happened."""
        self._counts[labels] += 0

    def add(self, *labels: str, times: int = 1) -> None:
        """Count once, or as often as it happened."""
        self._counts[labels] += times

    def collect(self) -> Iterable[Metric]:
        return (_counter(self._name, self._text, self._labels, self._counts),)


class Durations(Collector):
    """How long something took, by labels: a histogram that is kept as `Counts` are.

    With `counted_as`, a name and a text, the number of them is shown as a counter too.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        buckets: Sequence[float],
        counted_as: tuple[str, str] | None = None,
    ) -> None:
        self._name, self._text, self._labels, self._counted_as = name, text, labels, counted_as
        self._edges = (*map(float, buckets), math.inf)
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * len(self._edges))
        self._seconds: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._exemplars: dict[tuple[tuple[str, ...], int], Exemplar] = {}

    def show(self, *labels: str) -> None:
        """Show these labels from now on, also while nothing has happened."""
        self._counts[labels][0] += 0

    def add(self, seconds: float, *labels: str, times: int = 1) -> None:
        """Count once, or several that took as long; exactly as long as an edge belongs to the bucket below it."""
        bucket = bisect_left(self._edges, seconds)
        self._counts[labels][bucket] += times
        self._seconds[labels] += times * seconds
        if tracing.CURRENT.get() is not None and (ids := tracing.current_ids()) is not None:
            self._exemplars[labels, bucket] = Exemplar({"trace_id": ids["trace_id"]}, seconds)

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        edges = [*map(repr, self._edges[:-1]), "+Inf"]
        for labels, counts in self._counts.items():
            family.add_metric(labels, list(zip(edges, accumulate(counts), strict=True)), self._seconds[labels])
            if self._exemplars:
                first = len(family.samples) - len(edges) - 2  # the count and the sum come after the buckets
                for bucket in range(len(edges)):
                    sample = family.samples[first + bucket]
                    family.samples[first + bucket] = sample._replace(exemplar=self._exemplars.get((labels, bucket)))
        yield family
        if self._counted_as is not None:
            totals = {labels: sum(counts) for labels, counts in self._counts.items()}
            yield _counter(*self._counted_as, self._labels, totals)


class _TracedHistogram(Histogram):
    """A histogram of the library that notes the trace of what it measures."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        super().observe(amount, exemplar or _trace())


def _trace() -> dict[str, str] | None:
    ids = tracing.current_ids()
    return None if ids is None else {"trace_id": ids["trace_id"]}


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


Kept = Counter | Gauge | Histogram | Counts | Durations
Instrument = TypeVar("Instrument", Counter, Gauge, Histogram, Counts, Durations)
Made = TypeVar("Made", Counts, Durations)


class Telemetry:
    """A set of instruments and their text form."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Kept] = {}
        self._plain_counters: list[bytes] = []

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:  # noqa: A002
        """Return a counter that is shown under just this name, with `_total` at its end or not."""
        if not name.endswith("_total") and name not in self._known:
            self._plain_counters.append(name.encode())
        return self._once(name, Counter, lambda: Counter(name, help, labels, registry=self.registry))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:  # noqa: A002
        return self._once(name, Gauge, lambda: Gauge(name, help, labels, registry=self.registry))

    def histogram(
        self,
        name: str,
        help: str,  # noqa: A002
        labels: Sequence[str] = (),
        buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
    ) -> Histogram:
        return self._once(
            name, Histogram, lambda: _TracedHistogram(name, help, labels, registry=self.registry, buckets=buckets)
        )

    def counts(self, name: str, text: str, labels: Sequence[str]) -> Counts:
        """Return a counter for what happens all the time; its name ends in `_total`."""
        return self._once(name, Counts, lambda: self._registered(Counts(name, text, labels)))

    def durations(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        buckets: Sequence[float],
        *,
        counted_as: tuple[str, str] | None = None,
    ) -> Durations:
        """Return a histogram for what happens all the time; its count may be shown as a counter of its own too."""
        return self._once(name, Durations, lambda: self._registered(Durations(name, text, labels, buckets, counted_as)))

    def register(self, collector: Collector) -> None:
        """Add a collector that makes its samples when asked: cheaper than thousands of gauges."""
        self.registry.register(collector)

    def render(self, wanted: Callable[[str], bool] | None = None) -> bytes:
        """Return the instruments in the Prometheus text format: all, or those whose names are wanted."""
        text = generate_latest(_Joined(self.registry, wanted))
        # The library appends `_total` to every counter; several of upstream's do not have it.
        for name in self._plain_counters:
            text = text.replace(name + b"_total", name)
        return text

    def page(self, accept: str, wanted: Callable[[str], bool] | None = None) -> tuple[bytes, str]:
        """Return the instruments for a scraper and the type of the page: with exemplars where there may be some."""
        if not tracing.is_on() or _OPENMETRICS not in accept:
            return self.render(wanted), METRICS_TYPE
        plain = frozenset(name.decode() for name in self._plain_counters)
        text = openmetrics.generate_latest(_Joined(self.registry, wanted, plain))  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST

    def _registered(self, made: Made) -> Made:
        self.registry.register(made)
        return made

    def _once(self, name: str, kind: type[Instrument], make: Callable[[], Instrument]) -> Instrument:
        existing = self._known.get(name)
        if existing is None:
            made = make()
            self._known[name] = made
            return made
        if not isinstance(existing, kind):
            raise TypeError(f"{name} is already a {type(existing).__name__.lower()}")
        return existing


class _Joined(CollectorRegistry):
    """A registry seen with one family per name: two collectors may both know queues, a scraper wants one block."""

    def __init__(
        self,
        registry: CollectorRegistry,
        wanted: Callable[[str], bool] | None = None,
        plain: frozenset[str] = frozenset(),
    ) -> None:
        """Counters in `plain` lose their `_total` and with it, in OpenMetrics, their type."""
        super().__init__()
        self._registry = registry
        self._wanted = wanted
        self._plain = plain

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for family in self._registry.collect():
            if self._wanted is not None and not self._wanted(family.name):
                continue
            if family.name in self._plain:
                family.type = "unknown"
                family.samples = [sample._replace(name=family.name) for sample in family.samples]
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples = [*known.samples, *family.samples]
        return families.values()
