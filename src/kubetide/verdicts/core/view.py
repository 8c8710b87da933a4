"""The part of a cluster that verdicts look at, as plain values, and how its objects belong together.

Nothing here is asked for later: what could not be read is named in `unreadable`, and a judgement that needs it is
`unknown`, never fine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from kubetide.api.objects.apps import DaemonSet, Deployment, PodDisruptionBudget, StatefulSet
from kubetide.api.objects.core import Lease, Node, Pod, PodTemplate, ResourceList, ResourceQuota
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, TypedObject, controller_of, key_of
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.resources import Amounts, add, pod_requests, subtract
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.objects.vpa import OFF, VerticalPodAutoscaler, update_mode
from kubetide.api.values.quantity import Quantity, QuantityText, parse_quantity
from kubetide.api.values.selectors import NOTHING, Selector, selector_from
from kubetide.errors import QuantityError, SelectorError

Workload = Deployment | StatefulSet | DaemonSet

KIND_WORDS = {"Deployment": "deploy", "StatefulSet": "statefulset", "DaemonSet": "daemonset"}
"""How a workload's kind is typed on a command line."""

PODS = "pods"
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The objects of one namespace."""

    hpas: list[HorizontalPodAutoscaler] = field(default_factory=list)
    vpas: list[VerticalPodAutoscaler] = field(default_factory=list)
    pdbs: list[PodDisruptionBudget] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """What was read of a cluster at one moment."""

    now: datetime
    hpas: tuple[HorizontalPodAutoscaler, ...] = ()
    vpas: tuple[VerticalPodAutoscaler, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    pods: tuple[Pod, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    nodes: tuple[Node, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    leases: tuple[Lease, ...] = ()
    webhooks: tuple[TypedObject, ...] = ()
    """Mutating webhook configurations."""
    pod_metrics: tuple[PodMetrics, ...] = ()
    node_metrics: tuple[NodeMetric, ...] = ()
    absent: frozenset[str] = frozenset()
    """Resources that the API server does not serve, such as `pods.metrics.k8s.io`."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Resources that are served and could not be read, with the reason."""
    whole: bool = True
    """Whether pods of all namespaces are here; without them nobody can tell what is free on a node."""

    @cached_property
    def workloads(self) -> Mapping[tuple[str, ObjectKey], Workload]:
        """Workloads by kind and key."""
        found: dict[tuple[str, ObjectKey], Workload] = {}
        for kind, items in (
            ("Deployment", self.deployments),
            ("StatefulSet", self.stateful_sets),
            ("DaemonSet", self.daemon_sets),
        ):
            found |= {(kind, key_of(item)): item for item in items}
        return found

    @cached_property
    def by_namespace(self) -> Mapping[str, "Neighbours"]:
        """What may concern each other: objects of one namespace. There may be thousands of namespaces."""
        found: dict[str, Neighbours] = {}
        for hpa in self.hpas:
            found.setdefault(hpa.metadata.namespace, Neighbours()).hpas.append(hpa)
        for vpa in self.vpas:
            found.setdefault(vpa.metadata.namespace, Neighbours()).vpas.append(vpa)
        for pdb in self.pdbs:
            found.setdefault(pdb.metadata.namespace, Neighbours()).pdbs.append(pdb)
        for workload in self.workloads.values():
            found.setdefault(workload.metadata.namespace, Neighbours()).workloads.append(workload)
        return found

    @cached_property
    def sizing_vpas(self) -> int:
        """How many VPAs set the size of new pods."""
        return sum(update_mode(vpa) != OFF for vpa in self.vpas)

    @cached_property
    def _pods_by_owner(self) -> Mapping[tuple[str, ObjectKey], list[Pod]]:
        found: dict[tuple[str, ObjectKey], list[Pod]] = {}
        for pod in self.pods:
            if (owner := owner_of(pod)) is not None:
                found.setdefault(owner, []).append(pod)
        return found

    def pods_of(self, kind: str, key: ObjectKey) -> list[Pod]:
        """Return the live pods that a workload owns."""
        return [pod for pod in self._pods_by_owner.get((kind, key), ()) if is_live(pod)]

    def matched(self, namespace: str, selector: Selector) -> list[Pod]:
        """Return the live pods of a namespace that a selector matches."""
        return [
            pod
            for pod in self._pods_by_namespace.get(namespace, ())
            if is_live(pod) and selector.matches(pod.metadata.labels)
        ]

    @cached_property
    def _pods_by_namespace(self) -> Mapping[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(pod.metadata.namespace, []).append(pod)
        return found

    @cached_property
    def usage(self) -> Mapping[ObjectKey, PodMetrics]:
        """Usage of pods by key."""
        return {key_of(one): one for one in self.pod_metrics}

    @cached_property
    def free(self) -> Mapping[str, Amounts]:
        """What is left on every node: allocatable without the requests of the pods on it."""
        taken: dict[str, list[Amounts]] = {}
        for pod in self.pods:
            if pod.spec.node_name and pod.status.phase not in _FINISHED:
                taken.setdefault(pod.spec.node_name, []).append({PODS: Quantity.of(1), **requests_of(pod)})
        found: dict[str, Amounts] = {}
        for node in self.nodes:
            has = amounts(node.status.allocatable)
            used = add(*taken.get(node.metadata.name, ()))
            found[node.metadata.name] = subtract(has, {name: used[name] for name in used if name in has})
        return found

    def names_of(self, kind: str, namespace: str) -> list[str]:
        """Return the names of the workloads of a kind in a namespace."""
        return sorted(key.name for found, key in self.workloads if found == kind and key.namespace == namespace)

    def lease(self, name: str) -> Lease | None:
        """Return the lease of this name, the one renewed last where several namespaces have one."""
        found = [lease for lease in self.leases if lease.metadata.name == name and lease.spec.renew_time is not None]
        return max(found, key=lambda lease: lease.spec.renew_time or self.now, default=None)


def owner_of(pod: Pod) -> tuple[str, ObjectKey] | None:
    """Return kind and key of the workload that a pod belongs to; a replica set counts as its deployment."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return None
    kind, name = owner.kind, owner.name
    if kind == "ReplicaSet":
        # The replica sets of a deployment are called after it, with a hash behind.
        kind, name = "Deployment", owner.name.rpartition("-")[0] or owner.name
    return kind, ObjectKey(pod.metadata.namespace, name)


def requests_of(pod: Pod) -> Amounts:
    """Return what a pod reserves; nothing where its requests cannot be read."""
    try:
        return pod_requests(pod)
    except QuantityError:
        return {}


def amounts(listed: ResourceList | None) -> Amounts:
    """Return the amounts of a list that can be read."""
    return {name: amount for name, text in (listed or {}).items() if (amount := amount_of(text)) is not None}


def amount_of(text: QuantityText) -> Quantity | None:
    """Return a quantity; None where the text is none."""
    try:
        return parse_quantity(text)
    except QuantityError:
        return None


def is_live(pod: Pod) -> bool:
    """Return whether a pod has neither finished nor is on its way out."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in _FINISHED


def template_of(workload: Workload) -> PodTemplate:
    """Return the template of a workload's pods."""
    return workload.spec.template or PodTemplate()


def selector_of(workload: Workload | PodDisruptionBudget) -> Selector:
    """Return the selector of a workload or a budget; one that cannot be read matches nothing."""
    try:
        return selector_from(workload.spec.selector)
    except SelectorError:
        return NOTHING
