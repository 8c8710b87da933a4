"""kubetide's own counters, gauges and histograms. ("Metrics" always means the usage of the cluster.)

Nothing is global: each process makes one `Telemetry` and passes it to its components, so that several components,
or several simulated processes in one test, never share a number by accident. Asking twice for the same name returns
the same instrument.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# The originals expose no `_created` series; dashboards and alerts made for them should see the same names.
disable_created_metrics()  # type: ignore[no-untyped-call]

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)


class Telemetry:
    """A set of instruments and their text form."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Counter | Gauge | Histogram] = {}
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
            name, Histogram, lambda: Histogram(name, help, labels, registry=self.registry, buckets=buckets)
        )

    def register(self, collector: Collector) -> None:
        """Add a collector that makes its samples when asked: cheaper than thousands of gauges."""
        self.registry.register(collector)

    def render(self) -> bytes:
        """Return all instruments in the Prometheus text format."""
        text = generate_latest(_Joined(self.registry))
        # The library appends `_total` to every counter; several originals do not have it.
        for name in self._plain_counters:
            text = text.replace(name + b"_total", name)
        return text

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

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for family in self._registry.collect():
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples = [*known.samples, *family.samples]
        return families.values()
