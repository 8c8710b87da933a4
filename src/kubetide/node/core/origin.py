"""The cgroup values that the kubelet derives from a spec, before any QoS rule changes them."""

from dataclasses import dataclass

from kubetide.api.objects.core import Container, Pod
from kubetide.api.qos import qos
from kubetide.api.values.quantity import ZERO, milli_value
from kubetide.node.core.formats import cpu


@dataclass(frozen=True, slots=True)
class OriginResources:
    """CPU shares, CFS quota and memory limit; -1 is unlimited."""

    shares: int
    quota: int
    memory_limit: int


def pod_origin(pod: Pod) -> OriginResources:
    """Return the values of a pod's cgroup."""
    request = qos.pod_request(pod).get("cpu", ZERO)
    return OriginResources(
        cpu.milli_to_shares(request.milli),
        cpu.milli_to_quota(qos.pod_cpu_limit_millis(pod)),
        qos.pod_memory_limit(pod),
    )


def container_origin(container: Container) -> OriginResources:
    """Return the values of a container's cgroup."""
    requests = container.resources.requests if container.resources else None
    return OriginResources(
        cpu.milli_to_shares(milli_value((requests or {}).get("cpu", 0))),
        cpu.milli_to_quota(qos.container_cpu_limit_millis(container)),
        qos.container_memory_limit(container),
    )
