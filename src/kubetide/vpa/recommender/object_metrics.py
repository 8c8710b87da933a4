"""What the statuses of VPAs say, as metrics: how many recommendations are capped or contested, and each one by name.

Counts are always there, for alerts. The recommendations themselves, under the names that kube-state-metrics gave them,
are as many series as there are containers and are shown on request (`--recommendation-metrics`).
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubetide.api.objects.resources import parse_list
from kubetide.api.objects.vpa import ContainerRecommendation, VerticalPodAutoscaler, update_mode
from kubetide.api.values.conditions import is_true
from kubetide.vpa.recommender.core.conflicts import HPA_CONFLICT

_STATE = "kube_verticalpodautoscaler"
_RECOMMENDED = f"{_STATE}_status_recommendation_containerrecommendations"
_TARGET = ("namespace", "verticalpodautoscaler", "target_api_version", "target_kind", "target_name")
_UNITS = {"cpu": "core", "memory": "byte"}
_FIELDS = {
    "target": "target",
    "lowerbound": "lower_bound",
    "upperbound": "upper_bound",
    "uncappedtarget": "uncapped_target",
}


class VpaObjectMetrics(Collector):
    """Reads the statuses when somebody asks for metrics."""

    def __init__(self, vpas: Callable[[], Iterable[VerticalPodAutoscaler]], *, by_name: bool) -> None:
        """`vpas` returns those that are served."""
        self._vpas = vpas
        self._by_name = by_name

    def collect(self) -> Iterator[GaugeMetricFamily]:
        vpas = tuple(self._vpas())
        capped = GaugeMetricFamily(
            "kubetide_recommender_capped_vpas", "VPAs with a target that a policy or a limit holds away from its need."
        )
        capped.add_metric((), float(sum(any(map(is_capped, containers(vpa))) for vpa in vpas)))
        contested = GaugeMetricFamily(
            "kubetide_recommender_conflicting_vpas", "VPAs whose workload an HPA scales on the same resource."
        )
        contested.add_metric((), float(sum(_contested(vpa) for vpa in vpas)))
        yield from (capped, contested)
        if self._by_name:
            yield from _recommendations(vpas)


def containers(vpa: VerticalPodAutoscaler) -> tuple[ContainerRecommendation, ...]:
    """Return what the status of a VPA recommends, by container."""
    recommendation = vpa.status.recommendation if vpa.status is not None else None
    return (recommendation.container_recommendations if recommendation is not None else None) or ()


def is_capped(one: ContainerRecommendation) -> bool:
    """Return whether a target differs from what the usage alone asks for."""
    free = parse_list(one.uncapped_target)
    return any(name in free and free[name] != amount for name, amount in parse_list(one.target).items())


def _contested(vpa: VerticalPodAutoscaler) -> bool:
    return vpa.status is not None and is_true(vpa.status.conditions or (), HPA_CONFLICT)


def _recommendations(vpas: Iterable[VerticalPodAutoscaler]) -> Iterator[GaugeMetricFamily]:
    labels = (*_TARGET, "container", "resource", "unit")
    families = {
        name: GaugeMetricFamily(f"{_RECOMMENDED}_{name}", f"The {name} in the status of a VPA.", labels=labels)
        for name in _FIELDS
    }
    modes = GaugeMetricFamily(
        f"{_STATE}_spec_updatepolicy_updatemode", "1 for the mode of a VPA.", labels=(*_TARGET, "update_mode")
    )
    for vpa in vpas:
        reference = vpa.spec.target_ref
        target = (reference.api_version, reference.kind, reference.name) if reference is not None else ("", "", "")
        whose = (vpa.metadata.namespace, vpa.metadata.name, *target)
        modes.add_metric((*whose, update_mode(vpa)), 1.0)
        for one in containers(vpa):
            for name, attribute in _FIELDS.items():
                for resource, amount in parse_list(getattr(one, attribute)).items():
                    unit = _UNITS.get(resource, "integer")
                    families[name].add_metric((*whose, one.container_name, resource, unit), float(amount))
    yield from (modes, *families.values())
