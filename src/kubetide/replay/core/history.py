"""A recorded cluster as it was at any time: objects by their last event, usage by what could be seen.

Time only goes forward: `advance` brings the cluster to a time and returns what changed on the way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.apps import Deployment, StatefulSet
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.metrics import ContainerUsage, PodMetrics
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import decode
from kubetide.durations import format_duration
from kubetide.stats.instants import microseconds, moment

TYPES: Mapping[str, type[Any]] = {
    "Pod": Pod,
    "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
    "Deployment": Deployment,
    "StatefulSet": StatefulSet,
}


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An object as it became at a time, in microseconds."""

    at: int
    event: str
    kind: str
    key: ObjectKey
    text: str


@dataclass(frozen=True, slots=True)
class SeenSample:
    """A sample of one container, and since when it could be seen: microseconds."""

    seen: int
    at: int
    key: ObjectKey
    container: str
    cpu_micros: int
    memory_bytes: int
    window_seconds: float


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after an event; None for absent."""

    kind: str
    key: ObjectKey
    old: Any
    new: Any


@dataclass(slots=True)
class RecordedCluster:
    """The objects and the newest samples at one time."""

    events: Sequence[ObjectEvent]
    samples: Sequence[SeenSample]
    objects: dict[str, dict[ObjectKey, Any]] = field(default_factory=lambda: {kind: {} for kind in TYPES})
    _event: int = 0
    _sample: int = 0
    _newest: dict[ObjectKey, dict[str, SeenSample]] = field(default_factory=dict)

    def advance(self, now: datetime) -> list[Change]:
        """Bring everything to a time; return the changes on the way, in order."""
        until, changes = microseconds(now), []
        while self._event < len(self.events) and self.events[self._event].at <= until:
            change = self._apply(self.events[self._event])
            self._event += 1
            if change is not None:
                changes.append(change)
        while self._sample < len(self.samples) and self.samples[self._sample].seen <= until:
            sample = self.samples[self._sample]
            listed = self._newest.setdefault(sample.key, {})
            if sample.cpu_micros < 0 and sample.memory_bytes < 0:
                listed.pop(sample.container, None)
            else:
                listed[sample.container] = sample
            if not listed:
                del self._newest[sample.key]
            self._sample += 1
        return changes

    def _apply(self, event: ObjectEvent) -> Change | None:
        known = self.objects.get(event.kind)
        if known is None:
            return None
        old = known.pop(event.key, None)
        if event.event == "DELETED":
            return Change(event.kind, event.key, old, None)
        # Unchanged objects stay the same value, which is how the recommender tells that nothing happened.
        new = decode(event.text, TYPES[event.kind], what=f"{event.kind} {event.key}")
        known[event.key] = new
        return Change(event.kind, event.key, old, new)

    def usage(self, namespace: str | None = None) -> Iterator[PodMetrics]:
        """Yield the usage that the metrics API would list."""
        for key in sorted(self._newest):
            listed = self._newest[key]
            if namespace is not None and key.namespace != namespace:
                continue
            newest = max(listed.values(), key=lambda sample: sample.at)
            yield PodMetrics(
                metadata=ObjectMeta(name=key.name, namespace=key.namespace, labels=self._labels(key)),
                timestamp=moment(newest.at),
                window=_window(newest),
                containers=tuple(
                    ContainerUsage(name=name, usage=_amounts(sample))
                    for name, sample in sorted(listed.items())
                    if sample.at == newest.at
                ),
            )

    def _labels(self, key: ObjectKey) -> Any:
        pod = self.objects["Pod"].get(key)
        return pod.metadata.labels if pod is not None else None


def _window(sample: SeenSample) -> str:
    seconds = sample.window_seconds
    return format_duration(timedelta(seconds=seconds)) if seconds == seconds else ""


def _amounts(sample: SeenSample) -> dict[str, str | int | float]:
    amounts: dict[str, str | int | float] = {}
    if sample.cpu_micros >= 0:
        amounts["cpu"] = f"{sample.cpu_micros}u"
    if sample.memory_bytes >= 0:
        amounts["memory"] = str(sample.memory_bytes)
    return amounts
