"""Which CPUs a container runs on: its own, the pools of its NUMA nodes, or the pool of its class.

The scheduler writes CPUs it dedicates into the pod; they win. Everything else follows from the share pools of the
NodeResourceTopology, so that latency-sensitive pods stay off dedicated CPUs. A pod with dedicated CPUs loses its
quota: it owns the CPUs, and throttling it would only waste them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.meta import ApiObject
from kubetide.api.qos import qos, reservation
from kubetide.api.qos.cgroups import BEST_EFFORT, kube_qos_of_path
from kubetide.api.qos.qos import NumaNodeResource, ResourceStatus
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import InvalidInput
from kubetide.node.core.hooks.context import HostAppRequest, PodRequest

STATIC = "static"


class SharePool(ApiObject, frozen=True, kw_only=True, gc=False):
    """CPUs that pods share on one NUMA node."""

    socket: int = 0
    node: int = 0
    cpuset: str = ""


class _KubeletPolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetRule:
    """The pools of the node."""

    kubelet_policy: str = ""
    share_pools: tuple[SharePool, ...] = ()
    be_share_pools: tuple[SharePool, ...] = ()
    system_cpuset: str = ""


def resource_status(annotations: Mapping[str, str] | None) -> ResourceStatus:
    """Return the scheduler's decision; raise DecodeError when it does not parse."""
    return qos.resource_status(annotations) or ResourceStatus()


def numa_aware(status: ResourceStatus) -> bool:
    """Return whether any NUMA node gives CPU to the pod."""
    return any(_takes_cpu(entry.resources) for entry in status.numa_node_resources or ())


def rule_from_topology(annotations: Mapping[str, str] | None) -> CpusetRule:
    """Return the pools that a NodeResourceTopology describes; raise when one of them is broken."""
    notes = annotations or {}
    system = (reservation.system_qos(notes) or reservation.SystemQos()).cpuset
    try:
        CpuSet.parse(system)
    except InvalidInput as error:
        raise InvalidInput(f"system cpuset {system!r}: {error}", field=qos.ANNOTATION_SYSTEM_QOS) from error
    return CpusetRule(
        kubelet_policy=kubelet_policy(notes),
        share_pools=_pools(notes, qos.ANNOTATION_LS_SHARE_POOLS),
        be_share_pools=_pools(notes, qos.ANNOTATION_BE_SHARE_POOLS),
        system_cpuset=system,
    )


def kubelet_policy(annotations: Mapping[str, str]) -> str:
    """Return the CPU manager policy of the kubelet, empty when nobody said; raise DecodeError."""
    text = annotations.get(qos.ANNOTATION_CPU_MANAGER) or "{}"
    return decode_folded(text, _KubeletPolicy, what=qos.ANNOTATION_CPU_MANAGER).policy


def cpuset_by_rule(pod: PodRequest, container_path: str, rule: CpusetRule, *, be_cpu_manager: bool) -> str | None:
    """Return the cpuset that the node's pools give a container; None leaves it alone, empty text clears it."""
    status = resource_status(pod.annotations)
    if numa_aware(status):
        entries = status.numa_node_resources or ()
        if pod.qos == "BE":
            if be_cpu_manager:
                return _of_nodes(rule.be_share_pools, entries)
        else:
            return _of_nodes(rule.share_pools, entries)
    if pod.qos == "SYSTEM" and rule.system_cpuset:
        return rule.system_cpuset
    if pod.qos == "LS":
        return _all(rule.share_pools)
    if kube_qos_of_path(container_path) == BEST_EFFORT:
        return ""
    if rule.kubelet_policy == STATIC:
        return None
    return _all(rule.share_pools)


def container_cpuset(
    pod: PodRequest, container_path: str, rule: CpusetRule | None, *, be_cpu_manager: bool
) -> str | None:
    """Return the cpuset of a container: its own CPUs first, then the pools."""
    own = resource_status(pod.annotations).cpuset
    if own:
        return own
    if rule is None or not container_path:
        # Without a path the class of the pod is unknown; guessing could hand a best-effort pod the shared pool.
        return None
    return cpuset_by_rule(pod, container_path, rule, be_cpu_manager=be_cpu_manager)


def unset_quota(pod: PodRequest) -> int | None:
    """Return -1 for a pod with CPUs of its own, None for any other."""
    return -1 if resource_status(pod.annotations).cpuset else None


def host_app_cpuset(app: HostAppRequest, rule: CpusetRule | None) -> str | None:
    """Return the cpuset of a host application; only latency-sensitive ones are supported."""
    if rule is None:
        return None
    if app.qos != "LS":
        raise InvalidInput(f"QoS class {app.qos!r} has no cpuset", subject=app.name, field="hostApplications")
    return _all(rule.share_pools)


def _takes_cpu(resources: ResourceList | None) -> bool:
    cpu = (resources or {}).get("cpu")
    batch = (resources or {}).get(qos.BATCH_CPU)
    return (cpu is not None and parse_quantity(cpu).sign != 0) or (
        batch is not None and parse_quantity(batch).value > 0
    )


def _pools(annotations: Mapping[str, str], what: str) -> tuple[SharePool, ...]:
    text = annotations.get(what)
    return decode_folded(text, tuple[SharePool, ...], what=what) if text else ()


def _all(pools: Iterable[SharePool]) -> str:
    return ",".join(pool.cpuset for pool in pools)


def _of_nodes(pools: tuple[SharePool, ...], entries: Iterable[NumaNodeResource]) -> str:
    return ",".join(pool.cpuset for entry in entries for pool in pools if pool.node == entry.node)
