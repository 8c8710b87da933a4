"""Batch resources of best-effort pods: CPU shares, CFS quota and memory limit that the kubelet does not set.

    shares = milli-CPU request x 1024 / 1000 (at least 2)     quota = milli-CPU limit x 100 (at least 1000)
    pod    = sums over its containers; one without a limit makes the pod unlimited

Kubernetes does not know what `batch-cpu` means and leaves such a pod at the weakest shares without any limit.
While best-effort CPU is held down by one quota on the whole tier, the quotas below are removed, because a parent
quota smaller than its children's is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kubetide.api.objects.core import Pod, ResourceList, ResourceRequirements
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import is_sidecar
from kubetide.api.qos import cpu_normalization, qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.quantity import parse_quantity
from kubetide.node.core.formats.cpu import milli_to_quota, milli_to_shares, normalized_quota
from kubetide.node.core.hooks.context import BatchResources, ContainerRequest, HookResponse, PodRequest


class _ExtendedSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    containers: dict[str, ResourceRequirements] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Whether batch pods have a quota of their own, and the node's normalization ratio; None is "not known yet"."""

    quota_enabled: bool | None = None
    ratio: float | None = None

    @property
    def effective_quota_enabled(self) -> bool:
        """Return whether quotas are set; they are before the first NodeSLO."""
        return self.quota_enabled is not False

    @property
    def effective_ratio(self) -> float:
        """Return the ratio that quotas are divided by, -1 when there is none or no quota is set."""
        return -1.0 if self.ratio is None or not self.effective_quota_enabled else self.ratio


def quota_switch(spec: NodeSLOSpec | None) -> bool:
    """Return whether batch pods get a quota: not while best-effort CPU is suppressed by the tier's quota."""
    threshold = spec.resource_used_threshold_with_be if spec else None
    return threshold is None or not (threshold.enable is True and threshold.cpu_suppress_policy == "cfsQuota")


def with_switch(rule: BatchRule, spec: NodeSLOSpec | None) -> tuple[BatchRule, bool]:
    """Return the rule after a NodeSLO and whether it changed."""
    enabled = quota_switch(spec)
    return replace(rule, quota_enabled=enabled), rule.quota_enabled != enabled


def with_ratio(rule: BatchRule, ratio: float) -> tuple[BatchRule, bool]:
    """Return the rule after a ratio and whether it changed; the first ratio always counts."""
    if rule.ratio is not None and not cpu_normalization.ratios_differ(rule.ratio, ratio):
        return rule, False
    return replace(rule, ratio=ratio), True


def batch_of(requirements: ResourceRequirements | None) -> BatchResources:
    """Return the batch part of a container's requirements."""
    requirements = requirements or ResourceRequirements()
    return BatchResources(
        cpu_request=_value(requirements.requests, qos.BATCH_CPU),
        cpu_limit=_value(requirements.limits, qos.BATCH_CPU),
        memory_request=_value(requirements.requests, qos.BATCH_MEMORY),
        memory_limit=_value(requirements.limits, qos.BATCH_MEMORY),
    )


def batch_from_annotation(annotations: Mapping[str, str] | None) -> dict[str, BatchResources] | None:
    """Return batch resources by container from the pod's annotation, None without a usable one."""
    text = (annotations or {}).get(qos.ANNOTATION_EXTENDED_RESOURCES)
    if not text:
        return None
    spec = decode_folded(text, _ExtendedSpec, what=qos.ANNOTATION_EXTENDED_RESOURCES)
    if spec.containers is None:
        return None
    return {name: batch_of(requirements) for name, requirements in spec.containers.items()}


def batch_from_spec(pod: Pod) -> dict[str, BatchResources] | None:
    """Return batch resources of the containers and sidecars that mention any, None when none does."""
    sidecars = (container for container in pod.spec.init_containers or () if is_sidecar(container))
    found = {
        container.name: batch
        for container in (*(pod.spec.containers or ()), *sidecars)
        if (batch := batch_of(container.resources)) != BatchResources()
    }
    return found or None


def pod_values(request: PodRequest, rule: BatchRule) -> HookResponse:
    """Return shares, quota and memory limit of a best-effort pod."""
    if request.qos != "BE" or request.batch is None:
        return HookResponse()
    containers = list(request.batch.values())
    shares = milli_to_shares(sum(max(c.cpu_request or 0, 0) for c in containers))
    return HookResponse(
        cpu_shares=shares,
        cfs_quota=_quota(_total(c.cpu_limit for c in containers), rule),
        memory_limit=_total(c.memory_limit for c in containers),
    )


def container_values(request: ContainerRequest, rule: BatchRule) -> HookResponse:
    """Return shares, quota and memory limit of a container of a best-effort pod."""
    if request.pod.qos != "BE" or request.batch is None:
        return HookResponse()
    batch = request.batch
    return HookResponse(
        cpu_shares=milli_to_shares(batch.cpu_request or 0),
        cfs_quota=_quota(_total([batch.cpu_limit]), rule),
        memory_limit=_total([batch.memory_limit]),
    )


def _total(limits: Iterable[int | None]) -> int:
    """Return the sum of limits, -1 as soon as one is missing."""
    total = 0
    for limit in limits:
        if limit is None or limit <= 0:
            return -1
        total += limit
    return total


def _quota(limit_milli: int, rule: BatchRule) -> int:
    if not rule.effective_quota_enabled:
        return -1
    return normalized_quota(milli_to_quota(limit_milli), rule.effective_ratio)


def _value(resources: ResourceList | None, name: str) -> int | None:
    text = (resources or {}).get(name)
    return None if text is None else parse_quantity(text).value
