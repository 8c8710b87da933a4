"""The QoS protocol between scheduler, controllers and node agent: classes, priority bands, labels and annotations.

Two notions must not be mixed: the *raw* class is what a label says, the *defaulted* class falls back to the
Kubernetes QoS class. Every function says in its name which one it returns.

    Guaranteed -> LSR      Burstable -> LS      BestEffort -> BE
    SYSTEM, LSE, LSR, LS -> koord-prod          BE -> koord-batch

`batch-cpu` and `mid-cpu` count milli-cores as plain integers; `batch-memory` and `mid-memory` count bytes.
Annotations are JSON as Go reads it: keys in any letter case.
"""

from collections.abc import Callable, Iterable, Mapping

from kubetide.api.objects.core import Container, Pod, ResourceList
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import is_sidecar, pod_requests
from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.quantity import ZERO, Quantity, int_value, milli_value, parse_quantity
from kubetide.errors import InvalidInput

LABEL_QOS = "koordinator.sh/qosClass"
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_CPU_NORMALIZATION_ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
LABEL_CORE_SCHED_GROUP = "koordinator.sh/core-sched-group-id"
LABEL_CORE_SCHED_POLICY = "koordinator.sh/core-sched-policy"
LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
LABEL_NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
LABEL_SUB_PRIORITY = "koordinator.sh/priority"

ANNOTATION_CPU_BURST = "koordinator.sh/cpuBurst"
ANNOTATION_MEMORY_QOS = "koordinator.sh/memoryQOS"
ANNOTATION_BLKIO_QOS = "koordinator.sh/blkioQOS"
ANNOTATION_CPU_QOS = "koordinator.sh/cpuQOS"
ANNOTATION_NETWORK_QOS = "koordinator.sh/networkQOS"
ANNOTATION_EVICTION_POLICY = "koordinator.sh/eviction-policy"
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_RESCTRL = "node.koordinator.sh/resctrl"
ANNOTATION_OOM_SCORE_ADJ = "koordinator.sh/oom-score-adj"
ANNOTATION_OOM_SCORE_ADJ_SPEC = "koordinator.sh/oom-score-adj-spec"
ANNOTATION_RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
ANNOTATION_DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
ANNOTATION_EXTENDED_RESOURCES = "node.koordinator.sh/extended-resource-spec"
ANNOTATION_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
ANNOTATION_CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
ANNOTATION_CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
ANNOTATION_POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
ANNOTATION_LS_SHARE_POOLS = "node.koordinator.sh/cpu-shared-pools"
ANNOTATION_BE_SHARE_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
ANNOTATION_CPU_MANAGER = "kubelet.koordinator.sh/cpu-manager-policy"
ANNOTATION_CPU_NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"

LSE, LSR, LS, BE, SYSTEM = "LSE", "LSR", "LS", "BE", "SYSTEM"
QOS_CLASSES = (LSE, LSR, LS, BE, SYSTEM)
NONE = ""

PROD, MID, BATCH, FREE = "koord-prod", "koord-mid", "koord-batch", "koord-free"
PRIORITY_CLASSES = (PROD, MID, BATCH, FREE)
_BANDS = ((PROD, 9000, 9999), (MID, 7000, 7999), (BATCH, 5000, 5999), (FREE, 3000, 3999))

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU, MID_MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"

_QOS_OF_KUBE = {GUARANTEED: LSR, BURSTABLE: LS, BEST_EFFORT: BE}
_PRIORITY_OF_QOS = {SYSTEM: PROD, LSE: PROD, LSR: PROD, LS: PROD, BE: BATCH}


def raw_qos(labels: Mapping[str, str] | None) -> str:
    """Return the QoS class of the label; anything but an exact known value is none."""
    value = (labels or {}).get(LABEL_QOS, NONE)
    return value if value in QOS_CLASSES else NONE


def kube_qos(pod: Pod) -> str:
    """Return the Kubernetes QoS class: the status field, or else the kubelet's rule over cpu and memory."""
    if pod.status.qos_class:
        return pod.status.qos_class
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        resources = container.resources
        _add_positive(requests, resources.requests if resources else None)
        found = _add_positive(limits, resources.limits if resources else None)
        guaranteed = guaranteed and len(found) == 2
    if not requests and not limits:
        return BEST_EFFORT
    if guaranteed and requests == limits:
        return GUARANTEED
    return BURSTABLE


def _add_positive(total: dict[str, Quantity], resources: ResourceList | None) -> set[str]:
    found: set[str] = set()
    for name in ("cpu", "memory"):
        quantity = parse_quantity((resources or {}).get(name, 0))
        if quantity.sign > 0:
            total[name] = total.get(name, ZERO) + quantity
            found.add(name)
    return found


def defaulted_qos(pod: Pod) -> str:
    """Return the raw QoS class or the one that the Kubernetes QoS class stands for."""
    return raw_qos(pod.metadata.labels) or _QOS_OF_KUBE.get(kube_qos(pod), NONE)


def priority_of_number(priority: int | None) -> str:
    """Return the priority class of a numeric priority."""
    for name, low, high in _BANDS:
        if priority is not None and low <= priority <= high:
            return name
    return NONE


def raw_priority(pod: Pod) -> str:
    """Return the priority class of the label, even if unknown (none), else of the numeric priority."""
    labels = pod.metadata.labels or {}
    if LABEL_PRIORITY_CLASS in labels:
        value = labels[LABEL_PRIORITY_CLASS]
        return value if value in PRIORITY_CLASSES else NONE
    return priority_of_number(pod.spec.priority)


def defaulted_priority(pod: Pod) -> str:
    """Return the raw priority class or the one that the defaulted QoS class stands for."""
    return raw_priority(pod) or _PRIORITY_OF_QOS.get(defaulted_qos(pod), NONE)


_DEFAULT_PRIORITY = {PROD: 9500, MID: 7500, BATCH: 5500, FREE: 3500}


def priority_value(pod: Pod) -> int:
    """Return the numeric priority of a pod; without one (or with 0) that of its defaulted class."""
    return pod.spec.priority or _DEFAULT_PRIORITY.get(defaulted_priority(pod), 0)


def pod_request(pod: Pod) -> dict[str, Quantity]:
    """Return the cpu and memory request by the scheduler's rule: sidecars count, overhead is added."""
    total = pod_requests(pod)
    return {name: total[name] for name in ("cpu", "memory") if name in total}


def container_request(container: Container, resource: str) -> int:
    """Return a request as a whole number (extended resources), 0 when absent."""
    requests = container.resources.requests if container.resources else None
    return int_value((requests or {}).get(resource, 0))


def container_limit(container: Container, resource: str) -> int:
    """Return a limit as a whole number (extended resources); none or not positive is -1."""
    limits = container.resources.limits if container.resources else None
    value = int_value((limits or {}).get(resource, 0))
    return value if value > 0 else -1


def extended_request(pod: Pod, resource: str) -> int:
    """Return the sum of the positive requests of containers and sidecars for an extended resource."""
    sidecars = (container for container in pod.spec.init_containers or () if is_sidecar(container))
    running = (*(pod.spec.containers or ()), *sidecars)
    return sum(max(container_request(container, resource), 0) for container in running)


def extended_limit(pod: Pod, resource: str) -> int:
    """Return the sum of the limits of the containers for an extended resource; one without makes it -1."""
    return _sum_limits(container_limit(container, resource) for container in pod.spec.containers or ())


def _sum_limits(limits: Iterable[int]) -> int:
    total = 0
    for value in limits:
        if value <= 0:
            return -1
        total += value
    return total if total > 0 else -1


def container_cpu_limit_millis(container: Container) -> int:
    """Return the CPU limit in milli-cores, -1 when there is none."""
    limits = container.resources.limits if container.resources else None
    value = milli_value((limits or {}).get("cpu", 0))
    return value if value > 0 else -1


def pod_cpu_limit_millis(pod: Pod) -> int:
    """Return the pod's CPU limit in milli-cores, -1 when there is none."""
    return _pod_limit(pod, container_cpu_limit_millis)


def container_memory_limit(container: Container) -> int:
    """Return the memory limit in bytes, -1 when there is none."""
    return container_limit(container, "memory")


def pod_memory_limit(pod: Pod) -> int:
    """Return the pod's memory limit in bytes, -1 when there is none."""
    return _pod_limit(pod, container_memory_limit)


def _pod_limit(pod: Pod, limit_of: Callable[[Container], int]) -> int:
    """Return the limits of containers summed, at least each init container's; one without limit makes it -1."""
    limits = [limit_of(container) for container in pod.spec.containers or ()]
    initial = [limit_of(container) for container in pod.spec.init_containers or ()]
    if min((*limits, *initial), default=0) <= 0:
        return -1
    return max((sum(limits), *initial))


class DeviceAllocation(ApiObject, frozen=True, kw_only=True, gc=False):
    """One device given to a pod."""

    minor: int = 0
    resources: ResourceList | None = None


def device_allocations(annotations: Mapping[str, str] | None) -> dict[str, tuple[DeviceAllocation, ...]] | None:
    """Return the devices of a pod by kind; None when absent; raise DecodeError."""
    text = (annotations or {}).get(ANNOTATION_DEVICE_ALLOCATED)
    if text is None:
        return None
    return decode_folded(text, dict[str, tuple[DeviceAllocation, ...]], what=ANNOTATION_DEVICE_ALLOCATED)


class NumaNodeResource(ApiObject, frozen=True, kw_only=True, gc=False):
    """What the scheduler gave a pod on one NUMA node."""

    node: int = 0
    resources: ResourceList | None = None


class ResourceStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    """What the scheduler gave a pod: dedicated CPUs, NUMA nodes."""

    cpuset: str = ""
    numa_node_resources: tuple[NumaNodeResource, ...] | None = None


def resource_status(annotations: Mapping[str, str] | None) -> ResourceStatus | None:
    """Return the scheduler's allocation; None when absent; raise DecodeError."""
    text = (annotations or {}).get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return None
    return decode_folded(text, ResourceStatus, what=ANNOTATION_RESOURCE_STATUS)


def dedicated_cpus(annotations: Mapping[str, str] | None) -> CpuSet | None:
    """Return the CPUs the scheduler dedicated to a pod; None when there are none or they cannot be read."""
    try:
        status = resource_status(annotations)
        cpus = CpuSet.parse(status.cpuset) if status else CpuSet()
    except InvalidInput:
        return None
    return cpus if len(cpus) else None
