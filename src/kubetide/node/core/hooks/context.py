"""What a hook sees and what it answers: requests of pods, containers, QoS directories and host applications.

The same plugin functions run behind three doors (runtime proxy, NRI, reconciler); each door builds these requests
from what it knows and applies the response its own way. In a response None means "do not touch"; for `cpuset` the
empty text is a third state, "clear".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kubetide.api.objects.core import Container, Pod
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import kube_qos_of_path
from kubetide.api.qos.qos import raw_qos
from kubetide.api.values.quantity import ZERO, milli_value
from kubetide.node.core.formats import cpu


@dataclass(frozen=True, slots=True)
class OriginResources:
    """CPU shares, CFS quota and memory limit that the kubelet derives from a spec; -1 is unlimited."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResources:
    """Batch CPU (milli-cores) and memory (bytes) of one container; None is "not mentioned"."""

    cpu_request: int | None = None
    cpu_limit: int | None = None
    memory_request: int | None = None
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A pod as a hook sees it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    cgroup_parent: str = ""
    resources: OriginResources | None = None
    batch: Mapping[str, BatchResources] | None = None

    @property
    def qos(self) -> str:
        """The QoS class by label only; empty when there is none."""
        return raw_qos(self.labels)

    @property
    def kube_qos(self) -> str:
        """The Kubernetes QoS class, guessed from the cgroup path."""
        return kube_qos_of_path(self.cgroup_parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """A container (or the sandbox of a pod) as a hook sees it."""

    pod: PodRequest
    name: str = ""
    container_id: str = ""
    sandbox: bool = False
    cgroup_parent: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    resources: OriginResources | None = None
    batch: BatchResources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeQosRequest:
    """One of the three QoS directories."""

    kube_qos: str
    cgroup_parent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAppRequest:
    """A host application of the NodeSLO."""

    name: str
    qos: str
    cgroup_parent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResponse:
    """What hooks want; None leaves a value alone."""

    cpu_shares: int | None = None
    cfs_quota: int | None = None
    cpuset: str | None = None
    memory_limit: int | None = None
    cpu_bvt: int | None = None
    cpu_idle: int | None = None
    resctrl_group: str | None = None
    """The resctrl group that a container is created in; only a runtime can put it there from the start."""
    env: Mapping[str, str] = field(default_factory=dict)

    def over(self, earlier: "HookResponse") -> "HookResponse":
        """Return the earlier response with everything that this one sets."""
        changes = {
            name: value
            for name in ("cpu_shares", "cfs_quota", "cpuset", "memory_limit", "cpu_bvt", "cpu_idle", "resctrl_group")
            if (value := getattr(self, name)) is not None
        }
        return replace(earlier, **changes, env={**earlier.env, **self.env})

    @property
    def empty(self) -> bool:
        """Return whether nothing is set."""
        return self == HookResponse()
