"""An HPA and a VPA that pull at the same string.

An HPA that scales a workload on CPU or memory *utilization* compares usage with requests; a VPA on the same resource
moves those requests under it, and the two chase each other. Asked to look (`--hpa-conflicts`), the recommender reports
it in the condition `HPAConflict`, and on request leaves that resource alone, or sizes it for the HPA (`coordination`).
An HPA on an absolute average value does not look at requests, but still doubles the reaction, so it counts too.
"""

from collections.abc import Iterable, Mapping

from kubetide.api.objects.coordination import HPA_CONFLICT
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import CrossVersionObjectReference, group_of
from kubetide.vpa.core.policy import RESOURCES

__all__ = ["HPA_CONFLICT", "REASON", "conflicts", "index_by_target", "message", "rivals", "scaled_resources"]

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
    found: dict[str, str] = {}
    for hpa in rivals(namespace, target, index):
        for resource in sorted(scaled_resources(hpa)):
            found.setdefault(resource, hpa.metadata.name)
    return found


def rivals(
    namespace: str,
    target: CrossVersionObjectReference | None,
    index: Mapping[tuple[str, str, str, str], list[HorizontalPodAutoscaler]],
) -> list[HorizontalPodAutoscaler]:
    """Return the HPAs that scale a VPA's workload, by name."""
    if target is None:
        return []
    key = (namespace, group_of(target.api_version), target.kind, target.name)
    return sorted(index.get(key, ()), key=lambda one: one.metadata.name)


def message(found: Mapping[str, str], *, avoided: bool, why: str = "") -> str:
    """Return what the condition reports."""
    parts = ", ".join(f"{resource} (HorizontalPodAutoscaler {hpa})" for resource, hpa in sorted(found.items()))
    ending = f"; these resources are left alone{why}" if avoided else ""
    return f"The same workload is scaled horizontally on {parts}{ending}"
