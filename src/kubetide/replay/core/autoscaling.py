"""The horizontal autoscaler on a recorded cluster: every reconcile that was recorded, decided again.

Target, pods and usage are those of the time; the memory of windows and rescales is the replay's own. Resource metrics
are replayed; an autoscaler with other metrics has no readings here and is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import Selector, selector_from
from kubetide.errors import SelectorError
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide, metrics_of
from kubetide.hpa.core.describe import ResourceQuery, query_of
from kubetide.hpa.core.observation import Memory, Observation, Options, ScaleView, memory_for
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.samples import MetricFailure, Reading, resource_reading
from kubetide.replay.core.history import RecordedCluster


@dataclass(frozen=True, slots=True)
class Reconcile:
    """When an autoscaler was looked at."""

    at: datetime
    key: ObjectKey


class AutoscalerReplay:
    """Replays the reconciles of autoscalers."""

    def __init__(
        self, cluster: RecordedCluster, options: Options | None = None, started: datetime | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options or Options()
        self._started = started
        self._memories: dict[ObjectKey, Memory] = {}

    def run(self, reconciles: Sequence[Reconcile]) -> Iterator[tuple[Reconcile, int | None]]:
        """Yield what each reconcile decides; None where it cannot be replayed."""
        for each in reconciles:
            self._cluster.advance(each.at)
            yield each, self._reconcile(each)

    def _reconcile(self, reconcile: Reconcile) -> int | None:
        key, now = reconcile.key, reconcile.at
        hpa = self._cluster.objects["HorizontalPodAutoscaler"].get(key)
        seen = self._observe(key, hpa, now) if hpa is not None else None
        if seen is None:
            return None
        memory = self._memories.get(key) or memory_for(seen.hpa, self._started)
        decision = decide(seen, memory, self._options, now=now)
        self._memories[key] = conclude(decision).memory
        return decision.desired

    def _observe(self, key: ObjectKey, hpa: HorizontalPodAutoscaler, now: datetime) -> Observation | None:
        reference = hpa.spec.scale_target_ref
        target = self._cluster.objects.get(reference.kind, {}).get(ObjectKey(key.namespace, reference.name))
        if target is None:
            return None
        try:
            selector = selector_from(target.spec.selector)
        except SelectorError:
            return None
        replicas = 1 if target.spec.replicas is None else target.spec.replicas
        scale = ScaleView(replicas, target.status.replicas or 0, str(selector))
        present = self._cluster.objects["Pod"].items()
        pods = PodList(
            pod for name, pod in present if name.namespace == key.namespace and selector.matches(pod.metadata.labels)
        )
        readings = self._readings(key, hpa, str(selector), selector, now)
        return None if readings is None else Observation(hpa=hpa, scale=scale, pods=pods, readings=readings)

    def _readings(
        self, key: ObjectKey, hpa: HorizontalPodAutoscaler, text: str, selector: Selector, now: datetime
    ) -> tuple[Reading, ...] | None:
        found: list[Reading] = []
        usage = [item for item in self._cluster.usage(key.namespace) if selector.matches(item.metadata.labels)]
        for metric in metrics_of(hpa.spec):
            try:
                query = query_of(metric, key.namespace, text)
                if not isinstance(query, ResourceQuery):
                    return None
                found.append(resource_reading(usage, query.resource, query.container))
            except MetricFailure as failure:
                found.append(failure)
        return tuple(found)
