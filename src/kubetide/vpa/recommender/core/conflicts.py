"""An HPA and a VPA that pull at the same string.

An HPA that scales a workload on CPU or memory *utilization* compares usage with requests; a VPA on the same resource
moves those requests under it, and the two chase each other. Asked to look (`--hpa-conflicts`), the recommender reports
it in the condition `HPAConflict`, and on request leaves that resource alone. An HPA on an absolute average value does
not look at requests, but still doubles the reaction, so it counts too.
"""

from collections.abc import Iterable, Mapping

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import group_of
from kubetide.api.objects.vpa import CrossVersionObjectReference
from kubetide.vpa.core.policy import RESOURCES

HPA_CONFLICT = "HPAConflict"
REASON = "SameResource"


def scaled_resources(hpa: HorizontalPodAutoscaler) -> frozenset[str]:
    """Return the resources that an HPA scales on; without any metric it is CPU."""
    if not hpa.spec.metrics:
        return frozenset({"cpu"})
    found = set()
    for metric in hpa.spec.metrics:
        for source in (metric.resource, metric.container_resource):
            if source is not None and source.name in RESOURCES:
                found.add(source.name)
    return frozenset(found)


def index_by_target(
    hpas: Iterable[HorizontalPodAutoscaler],
) -> Mapping[tuple[str, str, str, str], list[HorizontalPodAutoscaler]]:
    """Return HPAs by namespace, group, kind and name of what they scale."""
    index: dict[tuple[str, str, str, str], list[HorizontalPodAutoscaler]] = {}
    for hpa in hpas:
        target = hpa.spec.scale_target_ref
        key = (hpa.metadata.namespace, group_of(target.api_version), target.kind, target.name)
        index.setdefault(key, []).append(hpa)
    return index


def conflicts(
    namespace: str,
    target: CrossVersionObjectReference | None,
    index: Mapping[tuple[str, str, str, str], list[HorizontalPodAutoscaler]],
) -> Mapping[str, str]:
    """Return the contested resources and the HPA that contests each."""
    if target is None:
        return {}
    key = (namespace, group_of(target.api_version), target.kind, target.name)
    found: dict[str, str] = {}
    for hpa in sorted(index.get(key, ()), key=lambda one: one.metadata.name):
        for resource in sorted(scaled_resources(hpa)):
            found.setdefault(resource, hpa.metadata.name)
    return found


def message(found: Mapping[str, str], *, avoided: bool) -> str:
    """Return what the condition reports."""
    parts = ", ".join(f"{resource} (HorizontalPodAutoscaler {hpa})" for resource, hpa in sorted(found.items()))
    ending = "; these resources are left alone" if avoided else ""
    return f"The same workload is scaled horizontally on {parts}{ending}"
