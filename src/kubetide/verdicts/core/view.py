"""The part of a cluster that verdicts look at, as plain values, and how its objects belong together.

Nothing here is asked for later: what could not be read is named in `unreadable`, and a judgement that needs it is
`unknown`, never fine.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from operator import is_

from kubetide.api.objects.apps import DaemonSet, Deployment, PodDisruptionBudget, StatefulSet
from kubetide.api.objects.core import Lease, Node, Pod, PodTemplate, ResourceList, ResourceQuota
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, TypedObject, controller_of, key_of
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.resources import CPU, MEMORY, Amounts, add, pod_requests, subtract
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.objects.vpa import OFF, VerticalPodAutoscaler, update_mode
from kubetide.api.qos.qos import defaulted_qos
from kubetide.api.values.quantity import Quantity, QuantityText, parse_quantity
from kubetide.api.values.selectors import NOTHING, Selector, selector_from
from kubetide.errors import QuantityError, SelectorError
from kubetide.verdicts.core.selecting import Labelled, Selecting

Workload = Deployment | StatefulSet | DaemonSet

KINDS: Mapping[type[Workload], str] = {Deployment: "Deployment", StatefulSet: "StatefulSet", DaemonSet: "DaemonSet"}
KIND_WORDS = {"Deployment": "deploy", "StatefulSet": "statefulset", "DaemonSet": "daemonset"}
"""How a workload's kind is typed on a command line."""

WorkloadKey = tuple[str, ObjectKey]
"""Kind and key."""

PODS = "pods"
_ONE = Quantity.of(1)
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Family:
    """A workload with what scales it and its pods; any part may be missing."""

    workloads: list[Workload] = field(default_factory=list)
    """One or none."""
    hpas: list[HorizontalPodAutoscaler] = field(default_factory=list)
    vpas: list[VerticalPodAutoscaler] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)

    def is_same(self, other: "Family") -> bool:
        """Return whether both are the very same objects."""
        return (
            _are_same(self.workloads, other.workloads)
            and _are_same(self.hpas, other.hpas)
            and _are_same(self.vpas, other.vpas)
            and _are_same(self.pods, other.pods)
        )


def _are_same(ours: Sequence[object], theirs: Sequence[object]) -> bool:
    return len(ours) == len(theirs) and all(map(is_, ours, theirs))


@dataclass(frozen=True)
class Neighbours:
    """The objects of one namespace, and who of them concerns whom."""

    pdbs: list[PodDisruptionBudget] = field(default_factory=list)
    quotas: list[ResourceQuota] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)

    @cached_property
    def selecting_workloads(self) -> Selecting[Workload]:
        """The workloads by the labels that they select."""
        return Selecting((workload, selector_of(workload)) for workload in self.workloads)

    @cached_property
    def selecting_pdbs(self) -> Selecting[PodDisruptionBudget]:
        """The budgets by the labels that they select."""
        return Selecting((pdb, selector_of(pdb)) for pdb in self.pdbs)

    @cached_property
    def live_pods(self) -> Labelled[Pod]:
        """The live pods by their labels."""
        return Labelled([pod for pod in self.pods if is_live(pod)])


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What follows from a pod alone, and is looked at again and again."""

    pod: Pod
    owner: WorkloadKey | None
    requests: Amounts
    qos: str


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
    pod_facts: dict[int, PodFacts] = field(default_factory=dict, repr=False, compare=False)
    """What was worked out of pods, by the identity of the pod: a later view of the same pods need not do it again."""

    def facts(self, pod: Pod) -> PodFacts:
        """Return what follows from a pod."""
        known = self.pod_facts.get(id(pod))
        if known is None or known.pod is not pod:
            known = self.pod_facts[id(pod)] = PodFacts(pod, owner_of(pod), requests_of(pod), _qos_of(pod))
        return known

    def facts_for(self, pods: Iterable[Pod]) -> dict[int, PodFacts]:
        """Return what is known of these pods, for a later view of them."""
        found = ((id(pod), self.pod_facts.get(id(pod))) for pod in pods)
        return {place: facts for place, facts in found if facts is not None}

    @cached_property
    def workloads(self) -> Mapping[WorkloadKey, Workload]:
        """Workloads by kind and key."""
        found: dict[WorkloadKey, Workload] = {}
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
        for pdb in self.pdbs:
            found.setdefault(pdb.metadata.namespace, Neighbours()).pdbs.append(pdb)
        for quota in self.quotas:
            found.setdefault(quota.metadata.namespace, Neighbours()).quotas.append(quota)
        for workload in self.workloads.values():
            found.setdefault(workload.metadata.namespace, Neighbours()).workloads.append(workload)
        for pod in self.pods:
            found.setdefault(pod.metadata.namespace, Neighbours()).pods.append(pod)
        return found

    def near(self, namespace: str) -> Neighbours:
        """Return the objects of a namespace."""
        return self.by_namespace.get(namespace) or Neighbours()

    @cached_property
    def selectors(self) -> Mapping[WorkloadKey, Selector]:
        """The selectors of workloads, by kind and key."""
        return {key: selector_of(workload) for key, workload in self.workloads.items()}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def reports(self) -> Mapping[str, NodeMetric]:
        """What the agents of nodes reported, by node."""
        return {metric.metadata.name: metric for metric in self.node_metrics}

    @cached_property
    def worked_out(self) -> dict[object, object]:
        """Answers to what is asked for many objects alike: room for a pod (`room`), the state of the webhook."""
        return {}

    @cached_property
    def sizing_vpas(self) -> int:
        """How many VPAs set the size of new pods."""
        return sum(update_mode(vpa) != OFF for vpa in self.vpas)

    @cached_property
    def families(self) -> Mapping[WorkloadKey, Family]:
        """All workloads, autoscalers and pods, by the workload that they belong to."""
        found: dict[WorkloadKey, Family] = {}
        for key, workload in self.workloads.items():
            found.setdefault(key, Family()).workloads.append(workload)
        for hpa in self.hpas:
            found.setdefault(target_of(hpa), Family()).hpas.append(hpa)
        for vpa in self.vpas:
            found.setdefault(target_of(vpa), Family()).vpas.append(vpa)
        for pod in self.pods:
            found.setdefault(self.facts(pod).owner or ("Pod", key_of(pod)), Family()).pods.append(pod)
        return found

    def family(self, key: WorkloadKey) -> Family:
        """Return what belongs to a workload."""
        return self.families.get(key) or Family()

    def pods_of(self, kind: str, key: ObjectKey) -> list[Pod]:
        """Return the live pods that a workload owns."""
        return [pod for pod in self.family((kind, key)).pods if is_live(pod)]

    def matched(self, namespace: str, selector: Selector) -> list[Pod]:
        """Return the live pods of a namespace that a selector matches."""
        return self.near(namespace).live_pods.those(selector)

    @cached_property
    def usage(self) -> Mapping[ObjectKey, PodMetrics]:
        """Usage of pods by key."""
        return {key_of(one): one for one in self.pod_metrics}

    @cached_property
    def used(self) -> Mapping[ObjectKey, Mapping[str, float]]:
        """What pods use, in cores and bytes, by key: read once for all who sum it up."""
        return {key: _used(one) for key, one in self.usage.items()}

    @cached_property
    def free(self) -> Mapping[str, Amounts]:
        """What is left on every node: allocatable without the requests of the pods on it."""
        taken: dict[str, list[Amounts]] = {}
        for pod in self.pods:
            if pod.spec.node_name and pod.status.phase not in _FINISHED:
                taken.setdefault(pod.spec.node_name, []).append({PODS: _ONE, **self.facts(pod).requests})
        found: dict[str, Amounts] = {}
        for node in self.nodes:
            has = amounts(node.status.allocatable)
            used = add(*taken.get(node.metadata.name, ()))
            found[node.metadata.name] = subtract(has, {name: used[name] for name in used if name in has})
        return found

    def names_of(self, kind: str, namespace: str) -> list[str]:
        """Return the names of the workloads of a kind in a namespace."""
        return sorted(each.metadata.name for each in self.near(namespace).workloads if KINDS[type(each)] == kind)

    def lease(self, name: str) -> Lease | None:
        """Return the lease of this name, the one renewed last where several namespaces have one."""
        found = [lease for lease in self.leases if lease.metadata.name == name and lease.spec.renew_time is not None]
        return max(found, key=lambda lease: lease.spec.renew_time or self.now, default=None)


def target_of(scaler: HorizontalPodAutoscaler | VerticalPodAutoscaler) -> WorkloadKey:
    """Return kind and key of what an autoscaler scales; of one that names nothing, a kind that nothing has."""
    ref = scaler.spec.scale_target_ref if isinstance(scaler, HorizontalPodAutoscaler) else scaler.spec.target_ref
    namespace = scaler.metadata.namespace
    return ("", ObjectKey(namespace, "")) if ref is None else (ref.kind, ObjectKey(namespace, ref.name))


def owner_of(pod: Pod) -> WorkloadKey | None:
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


def _qos_of(pod: Pod) -> str:
    try:
        return defaulted_qos(pod)
    except QuantityError:
        return ""


def amounts(listed: ResourceList | None) -> Amounts:
    """Return the amounts of a list that can be read."""
    return {name: amount for name, text in (listed or {}).items() if (amount := amount_of(text)) is not None}


def amount_of(text: QuantityText) -> Quantity | None:
    """Return a quantity; None where the text is none."""
    try:
        return parse_quantity(text)
    except QuantityError:
        return None


def _used(measured: PodMetrics) -> dict[str, float]:
    total = {CPU: 0, MEMORY: 0}
    for one in measured.containers or ():
        for resource, text in (one.usage or {}).items():
            if resource in total and (amount := amount_of(text)) is not None:
                total[resource] += amount.nanos
    return {resource: nanos / 1e9 for resource, nanos in total.items()}


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
