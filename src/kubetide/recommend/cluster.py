"""Reads what is to be sized, from any cluster, with read permission only.

Workloads are Deployments, StatefulSets, DaemonSets, Jobs and CronJobs, ReplicaSets without owner, and every custom
resource with a scale subresource and a pod template (Argo Rollouts). What may not be listed is named and left out;
nodes, quotas and HPAs are read where that is allowed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kubetide.api.objects.core import Node, Pod, PodTemplate, ResourceQuota
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ApiObject, TypedObject, controller_of
from kubetide.api.objects.scheme import HPAS, NODES, PODS, RESOURCE_QUOTAS, Resource
from kubetide.api.values.selectors import parse_selector
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.recommend.core.workloads import Bounds, Container, Sizes, Workload, sizes
from kubetide.vpa.core.policy import CPU, MEMORY

T = TypeVar("T")
_Owner = tuple[str, str, str]


class _JobTemplateSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    template: PodTemplate | None = None
    parallelism: int | None = None


class _JobTemplate(ApiObject, frozen=True, kw_only=True, gc=False):
    spec: _JobTemplateSpec = _JobTemplateSpec()


class _Spec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int | None = None
    parallelism: int | None = None
    template: PodTemplate | None = None
    job_template: _JobTemplate | None = None


class _Status(ApiObject, frozen=True, kw_only=True, gc=False):
    desired_number_scheduled: int = 0


class _Templated(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _resource(group: str, version: str, plural: str, kind: str) -> Resource[_Templated]:
    return Resource(group, version, plural, kind, _Templated)


BUILT_IN = (
    _resource("apps", "v1", "deployments", "Deployment"),
    _resource("apps", "v1", "statefulsets", "StatefulSet"),
    _resource("apps", "v1", "daemonsets", "DaemonSet"),
    _resource("apps", "v1", "replicasets", "ReplicaSet"),
    _resource("batch", "v1", "jobs", "Job"),
    _resource("batch", "v1", "cronjobs", "CronJob"),
)
_OWNED = ("ReplicaSet", "Job")
"""Rows of their own only where nothing owns them."""
_SHORT = {"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "rs": "replicaset", "cj": "cronjob"}
_NOT_CUSTOM = ("", "apps", "batch", "extensions", "autoscaling", "policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which workloads are looked at."""

    namespace: str = ""
    labels: str = ""
    kinds: frozenset[str] = frozenset()
    """In lower case; empty means all."""
    name: str = ""
    """Only workloads of this name."""


def kind_named(text: str) -> str:
    """Return a kind in lower case, from the ways in which kubectl takes it."""
    name = text.lower()
    return _SHORT.get(name, name.removesuffix("s"))


@dataclass(slots=True)
class ClusterState:
    """What was read, and what could not be."""

    workloads: list[Workload] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)
    problems: list[str] = field(default_factory=list)


async def read_workloads(client: Client, selection: Selection, *, cluster: str = "") -> ClusterState:
    """Read the workloads of a cluster with their pods; raises where no kind of workload may be listed."""
    state = ClusterState()
    namespace = selection.namespace or None

    refused: set[Resource[Any]] = set()

    async def listed(resource: Resource[T], within: str | None = namespace) -> tuple[T, ...]:
        try:
            return (await client.list(resource, namespace=within)).items
        except NotFound:
            return ()
        except Unavailable:
            raise
        except KubetideError as error:
            state.problems.append(f"{resource} cannot be listed: {' '.join(str(error).split())}")
            refused.add(resource)
            return ()

    kinds = [*BUILT_IN, *await _custom(client, state.problems)]
    # One of several clusters need not have every kind.
    if not cluster and (unknown := selection.kinds - {kind.kind.lower() for kind in kinds}):
        there = ", ".join(sorted(kind.kind for kind in kinds))
        raise InvalidInput(f"no workload is of kind {min(unknown)!r}; there are: {there}", field="--kind")
    async with asyncio.TaskGroup() as group:
        # Owners are needed without the selector: a label of the Deployment need not be on its ReplicaSets.
        tasks = [group.create_task(listed(kind), name=f"recommend/{kind}") for kind in kinds]
        pods = group.create_task(listed(PODS), name="recommend/pods")
        hpas = group.create_task(listed(HPAS), name="recommend/hpas")
        nodes = group.create_task(listed(NODES, within=None), name="recommend/nodes")
        quotas = group.create_task(listed(RESOURCE_QUOTAS), name="recommend/quotas")
    if len(state.problems) >= len(BUILT_IN) and not any(task.result() for task in tasks):
        raise KubetideError(f"no workloads may be read: {state.problems[0]}")
    objects = [(kind, each) for kind, task in zip(kinds, tasks, strict=True) for each in task.result()]
    state.pods, state.nodes = list(pods.result()), list(nodes.result())
    selector = parse_selector(selection.labels)
    owners = _owners(objects)
    by_owner: dict[_Owner, list[Pod]] = {}
    for pod in state.pods:
        if (top := _top(pod, owners)) is not None:
            by_owner.setdefault(top, []).append(pod)
    targets = _targets(hpas.result()) if HPAS not in refused else None
    for kind, each in objects:
        meta = each.metadata
        wanted = not selection.kinds or kind.kind.lower() in selection.kinds
        wanted = wanted and selection.name in ("", meta.name)
        owned = kind.kind in _OWNED and controller_of(each.metadata) is not None
        if not wanted or owned or not selector.matches(meta.labels or {}):
            continue
        key = (meta.namespace, kind.kind, meta.name)
        found = _workload(kind, each, by_owner.get(key, []))
        if found is not None:
            utilization = None if targets is None else targets.get(key, {})
            state.workloads.append(replace(found, cluster=cluster, utilization=utilization))
    state.bounds = Bounds(largest_node=_largest(state.nodes), quota_left=_left(quotas.result()))
    return state


async def _custom(client: Client, problems: list[str]) -> Sequence[Resource[_Templated]]:
    """Return the custom resources that have a scale subresource."""
    found: list[Resource[_Templated]] = []
    for group, versions in (await client.discovery.groups()).items():
        if group in _NOT_CUSTOM or group.endswith(".k8s.io") or not versions:
            continue
        try:
            listed = await client.discovery.resources(group, versions[0])
        except KubetideError as error:
            problems.append(f"{group} cannot be discovered: {' '.join(str(error).split())}")
            continue
        found += [
            _resource(each.group, each.version, each.plural, each.kind)
            for each in listed
            if each.scale_type is not None and each.namespaced
        ]
    return found


def _workload(kind: Resource[_Templated], each: _Templated, pods: Sequence[Pod]) -> Workload | None:
    spec = each.spec
    job = spec.job_template.spec if spec.job_template is not None else None
    template = job.template if job is not None else spec.template
    if template is None or not template.spec.containers:
        return None
    running = [pod for pod in pods if pod.status.phase in ("Pending", "Running")]
    replicas = spec.replicas if spec.replicas is not None else 1
    if kind.kind == "DaemonSet":
        replicas = each.status.desired_number_scheduled
    elif kind.kind in ("Job", "CronJob"):
        replicas = (job.parallelism if job is not None else spec.parallelism) or 1
    sidecars = [one for one in template.spec.init_containers or () if one.restart_policy == "Always"]
    return Workload(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=each.metadata.namespace,
        name=each.metadata.name,
        replicas=replicas,
        containers=tuple(
            Container(
                one.name,
                sizes(one.resources.requests if one.resources is not None else None),
                sizes(one.resources.limits if one.resources is not None else None),
                sidecar=one in sidecars,
            )
            for one in (*template.spec.containers, *sidecars)
        ),
        pods=frozenset(pod.metadata.name for pod in pods),
        nodes=frozenset(pod.spec.node_name for pod in running if pod.spec.node_name),
    )


def _owners(objects: Sequence[tuple[Resource[_Templated], _Templated]]) -> Mapping[_Owner, _Owner | None]:
    """Return what owns each object, None for nothing."""
    found: dict[_Owner, _Owner | None] = {}
    for kind, each in objects:
        owner = controller_of(each.metadata)
        namespace = each.metadata.namespace
        found[namespace, kind.kind, each.metadata.name] = (namespace, owner.kind, owner.name) if owner else None
    return found


def _top(pod: Pod, owners: Mapping[_Owner, _Owner | None]) -> _Owner | None:
    """Return the topmost workload above a pod that was listed."""
    owner = controller_of(pod.metadata)
    at = (pod.metadata.namespace, owner.kind, owner.name) if owner is not None else None
    if at is None or at not in owners:
        return None
    while at[1] in _OWNED and (above := owners[at]) is not None and above in owners:
        at = above
    return at


def _targets(hpas: Sequence[HorizontalPodAutoscaler]) -> Mapping[_Owner, Mapping[str, int]]:
    found: dict[_Owner, dict[str, int]] = {}
    for hpa in hpas:
        target = hpa.spec.scale_target_ref
        for metric in hpa.spec.metrics or ():
            source = metric.resource or metric.container_resource
            if source is not None and source.target.average_utilization:
                key = (hpa.metadata.namespace, target.kind, target.name)
                found.setdefault(key, {})[source.name] = source.target.average_utilization
    return found


def _largest(nodes: Sequence[Node]) -> Sizes:
    each = [sizes(node.status.allocatable) for node in nodes]
    cpu = [one.cpu_millis for one in each if one.cpu_millis]
    memory = [one.memory_bytes for one in each if one.memory_bytes]
    return Sizes(max(cpu, default=None), max(memory, default=None))


def _left(quotas: Sequence[ResourceQuota]) -> Mapping[str, Sizes]:
    """Return how much more may be requested in each namespace that has a quota."""
    found: dict[str, dict[str, int]] = {}
    for quota in quotas:
        for resource in (CPU, MEMORY):
            for name in (f"requests.{resource}", resource):
                hard = sizes({resource: (quota.status.hard or {}).get(name, "")} if quota.status.hard else None)
                used = sizes({resource: (quota.status.used or {}).get(name, "0")})
                most = hard.cpu_millis if resource == CPU else hard.memory_bytes
                taken = (used.cpu_millis if resource == CPU else used.memory_bytes) or 0
                if most is not None:
                    left = found.setdefault(quota.metadata.namespace, {})
                    left[resource] = min(left.get(resource, most - taken), most - taken)
    return {namespace: Sizes(left.get(CPU), left.get(MEMORY)) for namespace, left in found.items()}
