"""The recommender's own numbers, under the names of the original."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from kubetide.vpa.policy import CPU, MEMORY, RESOURCES, Recommended
from kubetide.vpa.recommender.model import Model, VpaState
from kubetide.vpa.recommender.quality import Quality

STEP_BUCKETS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 120.0, 150.0, 240.0, 300.0),
)
LATENCY_BUCKETS = (
    *(1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(90.0, 120.0, 150.0, 180.0, 240.0, 300.0, 600.0, 900.0, 1800.0),
)
PREFIX = "vpa_recommender_"
"""Before every name but those of quality."""


class Instruments(Protocol):
    """Hands out instruments; `kubetide.telemetry.Telemetry` does."""

    def counter(self, name: str, help: str, labels: Any = ()) -> Any: ...  # noqa: A002
    def gauge(self, name: str, help: str, labels: Any = ()) -> Any: ...  # noqa: A002
    def histogram(self, name: str, help: str, labels: Any = (), buckets: Any = ()) -> Any: ...  # noqa: A002
    def register(self, collector: Any) -> None: ...


class Steady(Protocol):
    """Counts seconds."""

    def monotonic(self) -> float: ...


class RecommenderTelemetry:
    """Steps, objects, responses and quality."""

    def __init__(self, instruments: Instruments) -> None:
        self.objects = instruments.gauge(
            f"{PREFIX}vpa_objects_count",
            "VPA objects by state.",
            ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"),
        )
        self.latency = instruments.histogram(
            f"{PREFIX}recommendation_latency_seconds",
            "Time from the creation of a VPA to its first recommendation.",
            buckets=LATENCY_BUCKETS,
        )
        self._steps = instruments.histogram(
            f"{PREFIX}execution_latency_seconds", "Time spent in each step.", ("step",), buckets=STEP_BUCKETS
        )
        self.aggregates = instruments.gauge(
            f"{PREFIX}aggregate_container_states_count", "Aggregates held in the model."
        )
        self.responses = instruments.counter(
            f"{PREFIX}metric_server_responses", "Answers of the metrics API.", ("is_error", "client_name")
        )
        self.quality = Quality()
        instruments.register(self.quality)

    @asynccontextmanager
    async def step(self, name: str, clock: Steady) -> AsyncIterator[None]:
        """Time a step, however it ends."""
        started = clock.monotonic()
        try:
            yield
        finally:
            self._steps.labels(name).observe(clock.monotonic() - started)

    def count_object(self, counts: dict[tuple[str, ...], int], vpa: VpaState, *, unsupported: bool) -> None:
        """Add one VPA to the counts by state."""
        flags = (bool(vpa.recommendation), vpa.pod_count > 0, unsupported)
        provided, matches, problem = (str(flag).lower() for flag in flags)
        labels = (vpa.mode, provided, "v1", matches, problem)
        counts[labels] = counts.get(labels, 0) + 1

    def set_object_counts(self, counts: Mapping[tuple[str, ...], int]) -> None:
        """Show how many VPAs are in which state; states without any disappear."""
        self.objects.clear()
        for labels, count in counts.items():
            self.objects.labels(*labels).set(count)

    def note_recommendation(
        self, vpa: VpaState, old: tuple[Recommended, ...] | None, new: tuple[Recommended, ...], model: Model
    ) -> None:
        """Hold the recommendation against coming samples, and count how far it moved."""
        capacity = model.aggregates.first.size
        mode = "" if vpa.mode == "Off" else vpa.mode
        slots: dict[str, list[int]] = {}
        for labels in vpa.label_sets.values():
            for name, slot in labels.aggregates.items():
                slots.setdefault(name, []).append(slot)
        before = {one.container: one for one in old or ()}
        after = {one.container: one for one in new}
        for name, held in slots.items():
            one = after.get(name)
            cpu = float(one.target[CPU]) if one is not None and CPU in one.target else float("nan")
            memory = float(one.target[MEMORY]) if one is not None and MEMORY in one.target else float("nan")
            self.quality.hold(held, mode, cpu, memory, capacity)
        for name, one in after.items():
            previous = before.get(name)
            if previous is None or previous is one:
                continue
            for resource in RESOURCES:
                was, now = (previous.uncapped or {}).get(resource), (one.uncapped or {}).get(resource)
                if was and now:
                    self.quality.changed(vpa.mode, resource, vpa.pod_count, float(now) / float(was) - 1.0)
