"""What the kubelet reports about CPUs: its manager policy, what it reserved, what it gave to pods itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.qos import qos
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.cpuset import CpuSet, CpuSetError
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.errors import InvalidInput, KubetideError
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.topology.take import take

STATIC = "static"
NONE_POLICY = "None"
_RESERVABLE = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_POLICIES = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}


class ReservationError(KubetideError):
    """The CPUs a kubelet reserves cannot be worked out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """The part of the kubelet's configuration that concerns CPUs."""

    cpu_manager_policy: str = "none"
    cpu_manager_options: Mapping[str, str] = field(default_factory=dict)
    topology_policy: str = "none"
    topology_scope: str = "container"
    reserved_system_cpus: str = ""
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)


def config_from(configz: Mapping[str, Any]) -> KubeletConfig:
    """Read the answer of `/configz`; parts that are invalid are passed over."""
    raw = configz.get("kubeletconfig")
    found = raw if isinstance(raw, Mapping) else {}

    def text(name: str, default: str) -> str:
        value = found.get(name)
        return value if isinstance(value, str) and value else default

    def pairs(name: str) -> dict[str, str]:
        value = found.get(name)
        return {str(key): str(item) for key, item in value.items()} if isinstance(value, Mapping) else {}

    return KubeletConfig(
        cpu_manager_policy=text("cpuManagerPolicy", "none"),
        cpu_manager_options=pairs("cpuManagerPolicyOptions"),
        topology_policy=text("topologyManagerPolicy", "none"),
        topology_scope=text("topologyManagerScope", "container"),
        reserved_system_cpus=text("reservedSystemCPUs", ""),
        kube_reserved=pairs("kubeReserved"),
        system_reserved=pairs("systemReserved"),
    )


def topology_policy(policy: str, scope: str) -> str:
    """Return the NodeResourceTopology name of a kubelet's topology policy and scope."""
    if policy not in _POLICIES or scope not in _SCOPES:
        return NONE_POLICY
    return _POLICIES[policy] + _SCOPES[scope]


def _reserved_cpu(resources: Mapping[str, str]) -> Quantity:
    total = ZERO
    for name, text in resources.items():
        if name not in _RESERVABLE:
            raise ReservationError(f"{name!r} cannot be reserved")
        try:
            quantity = parse_quantity(text)
        except InvalidInput as error:
            raise ReservationError(f"reserved {name} {text!r} is not a quantity") from error
        if name == "cpu":
            total = max(quantity, ZERO)
        elif quantity.sign < 0:
            raise ReservationError(f"reserved {name} {text!r} is negative")
    return total


def negative_reservations(config: KubeletConfig) -> tuple[str, ...]:
    """Return the reserved CPU amounts that count as none because they are negative, as `field: amount`."""
    fields = (("kubeReserved", config.kube_reserved), ("systemReserved", config.system_reserved))
    return tuple(f"{name}.cpu: {resources['cpu']}" for name, resources in fields if _is_negative(resources.get("cpu")))


def _is_negative(text: str | None) -> bool:
    try:
        return text is not None and parse_quantity(text).sign < 0
    except InvalidInput:
        return False


def reserved_cpus(config: KubeletConfig, processors: Iterable[Processor]) -> CpuSet:
    """Return the CPUs a kubelet with the static policy keeps for the system; raise ReservationError.

    Listed CPUs replace the amounts, but amounts that no kubelet accepts are an error beside a list too. A negative CPU
    amount counts as none: whoever wrote it wanted nothing reserved, and the rest of the report does not depend on it.
    """
    if config.cpu_manager_policy != STATIC:
        return CpuSet()
    known = tuple(processors)
    every = CpuSet.of(one.cpu for one in known)
    amount = _reserved_cpu(config.kube_reserved) + _reserved_cpu(config.system_reserved)
    try:
        reserved = CpuSet.parse(config.reserved_system_cpus)
    except CpuSetError as error:
        raise ReservationError(f"reserved CPUs {config.reserved_system_cpus!r} are no CPU list") from error
    if not reserved <= every:
        raise ReservationError(f"reserved CPUs {reserved - every} do not exist")
    if len(reserved):
        return reserved
    count = -(-amount.milli // 1000)
    if count <= 0:
        if negative_reservations(config):
            return CpuSet()
        raise ReservationError("the static policy needs reserved CPUs")
    return take(known, every, count)


def manager_annotation(config: KubeletConfig, processors: Iterable[Processor]) -> dict[str, Any]:
    """Return the cpu-manager-policy annotation; reserved CPUs that cannot be worked out are left out."""
    result: dict[str, Any] = {"policy": config.cpu_manager_policy}
    if config.cpu_manager_options:
        result["options"] = dict(config.cpu_manager_options)
    try:
        reserved = reserved_cpus(config, processors)
    except KubetideError:
        return result
    if len(reserved):
        result["reservedCPUs"] = str(reserved)
    return result


class CpuManagerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The kubelet's checkpoint of CPU assignments."""

    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAllocation:
    """CPUs that the kubelet itself gave to a pod."""

    uid: str
    cpus: CpuSet
    namespace: str = ""
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the annotation form."""
        fields: dict[str, Any] = {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "cpuset": str(self.cpus),
            "managedByKubelet": True,
        }
        return {name: value for name, value in fields.items() if value}


def is_managed_here(pod: Pod) -> bool:
    """Return whether the CPUs of a pod are the agent's business and not the kubelet's."""
    if qos.raw_qos(pod.metadata.labels) in (qos.LS, qos.BE):
        return True
    return qos.dedicated_cpus(pod.metadata.annotations) is not None


def kubelet_allocations(state: str, pods: Iterable[Pod]) -> tuple[PodAllocation, ...]:
    """Return the pods that the kubelet pinned, by uid; raise DecodeError for a state that cannot be read."""
    if not state:
        return ()
    entries = decode_folded(state, CpuManagerState, what="cpu_manager_state").entries or {}
    known = {pod.metadata.uid: pod for pod in pods}
    found: list[PodAllocation] = []
    for uid, containers in entries.items():
        pod = known.get(uid)
        if pod is not None and is_managed_here(pod):
            continue
        cpus = CpuSet()
        for text in containers.values():
            try:
                cpus |= CpuSet.parse(text)
            except CpuSetError:
                continue
        if len(cpus):
            namespace = pod.metadata.namespace if pod else ""
            name = pod.metadata.name if pod else ""
            found.append(PodAllocation(uid=uid, cpus=cpus, namespace=namespace, name=name))
    return tuple(sorted(found, key=lambda one: one.uid))
