"""The recommender's own numbers, under the names of upstream."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, Protocol

from kubetide.api.objects.vpa import AUTO, IN_PLACE, IN_PLACE_OR_RECREATE, INITIAL, OFF, RECREATE
from kubetide.vpa.core.policy import CPU, MEMORY, RESOURCES, Recommended
from kubetide.vpa.recommender.core.entities import VpaState, oldest
from kubetide.vpa.recommender.core.usage.plausible import RefusalReason
from kubetide.vpa.recommender.quality import PREFIX as QUALITY_PREFIX
from kubetide.vpa.recommender.quality import Quality, size_log2

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
UPDATE_MODES = (OFF, INITIAL, RECREATE, AUTO, IN_PLACE_OR_RECREATE, IN_PLACE)
FLAGS = ("false", "true")
NO_OBJECTS: dict[tuple[str, ...], int] = dict.fromkeys(product(UPDATE_MODES, FLAGS, ("v1",), FLAGS, FLAGS), 0)


class InstrumentFactory(Protocol):
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

    def __init__(self, instruments: InstrumentFactory) -> None:
        self.objects = instruments.gauge(
            f"{PREFIX}vpa_objects_count",
            "VPA objects by state.",
            ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"),
        )
        self._states: dict[tuple[str, ...], int] = {}
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
        self.reads = instruments.counter(
            "vpa_resources_get_resources_count",
            "How often the requests of a container were looked up, by where they were found.",
            ("source",),
        )
        self.refused = instruments.counter(
            "kubetide_recommender_refused_samples_total", "Samples that cannot be true, by why.", ("reason",)
        )
        self.throttled = instruments.counter(
            "kubetide_recommender_throttled_samples_total",
            "CPU samples of containers that were held back by their limit, which count as a lower bound.",
        )
        self.signalled = instruments.gauge(
            "kubetide_recommender_signalled_samples",
            "Samples of the last loop about which a node said more than usage.",
        )
        for reason in RefusalReason:
            self.refused.labels(reason.value)
        missing = instruments.counter(
            f"{QUALITY_PREFIX}usage_sample_missing_recommendation_count",
            "Samples of containers without a recommendation.",
            ("update_mode", "resource", "is_oom"),
        )
        self.quality = Quality(missing)
        instruments.register(self.quality)

    @asynccontextmanager
    async def step(self, name: str, clock: Steady) -> AsyncIterator[None]:
        """Time a step, however it ends."""
        started = clock.monotonic()
        try:
            yield
        finally:
            self._steps.labels(name).observe(clock.monotonic() - started)

    def set_objects(self, counts: dict[tuple[str, ...], int]) -> None:
        """Show how many VPAs are in which state; a state that none is in is shown as 0."""
        states = NO_OBJECTS | counts
        if states == self._states:
            return
        self.objects.clear()
        for labels, count in states.items():
            self.objects.labels(*labels).set(count)
        self._states = states


class Review:
    """One evaluation of all VPAs as numbers, gathered VPA by VPA and shown at once at the end."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], int] = {}
        self._moves: dict[tuple[str, str, str], list[float]] = {}
        self._slots: list[int] = []
        self._modes: list[str] = []
        self._cores: list[float] = []
        self._memory: list[float] = []

    def count(self, vpa: VpaState, *, unsupported: bool) -> None:
        """Add a VPA to the counts by state."""
        provided, matches = FLAGS[bool(vpa.recommendation)], FLAGS[vpa.pod_count > 0]
        labels = (vpa.mode, provided, "v1", matches, FLAGS[unsupported])
        self.counts[labels] = self.counts.get(labels, 0) + 1

    def hold(self, vpa: VpaState) -> None:
        """Hold the recommendation of a VPA against coming samples of its containers; of several VPAs the oldest's."""
        mode = "" if vpa.mode == OFF else vpa.mode
        held = {one.container: (_amount(one, CPU), _amount(one, MEMORY)) for one in vpa.recommendation or ()}
        for labels in vpa.label_sets.values():
            if len(labels.vpas) > 1 and oldest(labels.vpas.values()) is not vpa:
                continue
            for name, slot in labels.aggregates.items():
                cores, memory = held.get(name, _NOTHING)
                self._slots.append(slot)
                self._modes.append(mode)
                self._cores.append(cores)
                self._memory.append(memory)

    def moved(self, vpa: VpaState, old: tuple[Recommended, ...] | None, new: tuple[Recommended, ...]) -> None:
        """Note how far the uncapped targets of a VPA moved."""
        if not old or old is new:
            return
        before = {one.container: one for one in old}
        size = str(size_log2(vpa.pod_count))
        for one in new:
            previous = before.get(one.container)
            if previous is None or previous is one:
                continue
            for resource in RESOURCES:
                was, now = (previous.uncapped or {}).get(resource), (one.uncapped or {}).get(resource)
                if was and now:
                    relative = float(now) / float(was) - 1.0
                    self._moves.setdefault((vpa.mode, resource, size), []).append(relative)

    def show(self, telemetry: RecommenderTelemetry) -> None:
        """Hand everything over."""
        telemetry.set_objects(self.counts)
        telemetry.quality.release()
        telemetry.quality.hold(self._slots, self._modes, self._cores, self._memory)
        telemetry.quality.changed(self._moves)


_NOTHING = (math.nan, math.nan)


def _amount(one: Recommended, resource: str) -> float:
    found = one.target.get(resource)
    return math.nan if found is None else float(found)
