"""What the updater did and saw: telemetry under upstream's names, and how long each step took."""

from collections.abc import Iterator
from contextlib import contextmanager

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.telemetry import Telemetry
from kubetide.vpa.updater.core.plan import Method, VpaPlan

PREFIX = "vpa_updater"
LATENCY_BUCKETS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0),
    *(120.0, 150.0, 240.0, 300.0),
)
LARGEST_SIZE = 20


def size_log2(pods: int) -> str:
    """Return floor(log2(pods)) as a label; 0 for none, at most 20."""
    return str(min(max(pods, 1).bit_length() - 1, LARGEST_SIZE))


class UpdaterTelemetry:
    """The updater's instruments."""

    def __init__(self, telemetry: Telemetry, *, clock: Clock) -> None:
        self._clock = clock
        moded, plain = ("vpa_size_log2", "update_mode"), ("vpa_size_log2",)
        named = ("vpa_name", "vpa_namespace")

        self.controlled = telemetry.gauge(f"{PREFIX}_controlled_pods_total", "Pods controlled by a VPA.", moded)
        self.evictable = telemetry.gauge(
            f"{PREFIX}_evictable_pods_total", "Pods that match the eviction criteria.", moded
        )
        self.vpas_evictable = telemetry.gauge(
            f"{PREFIX}_vpas_with_evictable_pods_total", "VPAs with such a pod.", moded
        )
        self.vpas_evicted = telemetry.gauge(
            f"{PREFIX}_vpas_with_evicted_pods_total", "VPAs with an evicted pod.", moded
        )
        self.updatable = telemetry.gauge(
            f"{PREFIX}_in_place_updatable_pods_total", "Pods that can be resized in place.", plain
        )
        self.vpas_updatable = telemetry.gauge(
            f"{PREFIX}_vpas_with_in_place_updatable_pods_total", "VPAs with such a pod.", plain
        )
        self.vpas_updated = telemetry.gauge(
            f"{PREFIX}_vpas_with_in_place_updated_pods_total", "VPAs with a resized pod.", plain
        )
        self.evicted = telemetry.counter(f"{PREFIX}_evicted_pods_total", "Pods evicted.", (*moded, *named))
        self.updated = telemetry.counter(
            f"{PREFIX}_in_place_updated_pods_total", "Pods resized in place.", (*plain, *named)
        )
        self.skipped = telemetry.counter(
            f"{PREFIX}_in_place_infeasible_skip_pods_total",
            "Pods not resized because the recommendation was infeasible before.",
            (*plain, *named),
        )
        self.failed_evictions = telemetry.counter(
            f"{PREFIX}_failed_eviction_attempts_total", "Evictions that failed.", (*moded, "reason", *named)
        )
        self.failed_updates = telemetry.counter(
            f"{PREFIX}_failed_in_place_update_attempts_total", "Resizes that failed.", (*plain, "reason", *named)
        )
        self.latency = telemetry.histogram(
            f"{PREFIX}_execution_latency_seconds", "Time spent in the steps of a loop.", ("step",), LATENCY_BUCKETS
        )
        self.growths = telemetry.counter(
            "kubetide_updater_memory_growths_total",
            "Containers whose memory was running out, by what became of it: grown, not grown, failed.",
            ("result",),
        )
        self.growth_latency = telemetry.histogram(
            "kubetide_updater_memory_growth_seconds",
            "Time from the sample that raised an alarm to the resize that answered it.",
            (),
            (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
        )
        self.hears_alarms = telemetry.gauge(
            "kubetide_updater_memory_alarms_heard", "1 while the metrics server tells which memory runs out, else 0."
        )
        self.paused = telemetry.gauge("kubetide_updater_paused_vpas", "VPAs whose updates are paused.")
        self.disruptions = telemetry.gauge("kubetide_updater_disruptions_last_minute", "Disruptions in a minute.")

    def begin_run(self) -> None:
        """Forget the gauges of the last loop."""
        for gauge in (self.controlled, self.evictable, self.vpas_evictable, self.vpas_evicted):
            gauge.clear()
        for gauge in (self.updatable, self.vpas_updatable, self.vpas_updated):
            gauge.clear()

    def count_plan(self, made: VpaPlan) -> None:
        """Count what a plan would do, and show the counters of its VPA from zero on."""
        size = size_log2(len(made.judged))
        self.count_from_zero(made.key, pods=len(made.judged), mode=made.mode)
        self.controlled.labels(size, made.mode).inc(len(made.judged))
        evictable = sum(candidate.method is Method.EVICT for candidate in made.candidates)
        updatable = sum(candidate.method is Method.RESIZE for candidate in made.candidates)
        if evictable:
            self.evictable.labels(size, made.mode).inc(evictable)
            self.vpas_evictable.labels(size, made.mode).inc()
        if updatable:
            self.updatable.labels(size).inc(updatable)
            self.vpas_updatable.labels(size).inc()

    def count_carried_out(self, made: VpaPlan) -> None:
        """Count a plan of which something was carried out."""
        size = size_log2(len(made.judged))
        groups = [judgement.group for judgement in made.judged if judgement.group is not None]
        if any(group.evicted for group in groups):
            self.vpas_evicted.labels(size, made.mode).inc()
        if any(group.initiated for group in groups):
            self.vpas_updated.labels(size).inc()

    def count_from_zero(self, key: ObjectKey, *, pods: int, mode: str) -> None:
        """Let the counters of a VPA exist before anything happens to its pods: a rate needs a first value."""
        self.evicted.labels(size_log2(pods), mode, key.name, key.namespace)
        self.updated.labels(size_log2(pods), key.name, key.namespace)

    def count_skipped(self, key: ObjectKey, *, pods: int) -> None:
        self.skipped.labels(size_log2(pods), key.name, key.namespace).inc()

    def count_eviction(self, key: ObjectKey, *, pods: int, mode: str) -> None:
        self.evicted.labels(size_log2(pods), mode, key.name, key.namespace).inc()

    def count_resize(self, key: ObjectKey, *, pods: int) -> None:
        self.updated.labels(size_log2(pods), key.name, key.namespace).inc()

    def count_failed_eviction(self, key: ObjectKey, *, pods: int, mode: str, reason: str) -> None:
        self.failed_evictions.labels(size_log2(pods), mode, reason, key.name, key.namespace).inc()

    def count_failed_resize(self, key: ObjectKey, *, pods: int, reason: str) -> None:
        self.failed_updates.labels(size_log2(pods), reason, key.name, key.namespace).inc()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step of a loop."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self.latency.labels(name).observe(self._clock.monotonic() - began)
