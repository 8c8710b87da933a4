"""Reads what is to be sized, from any cluster, with read permission only.

Workloads are Deployments, StatefulSets, DaemonSets, Jobs and CronJobs, ReplicaSets without owner, and every custom
resource with a scale subresource (Argo Rollouts). What may not be listed is named and left out;
nodes, quotas and HPAs are read where that is allowed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kubetide.api.objects.core import Node, Pod, ResourceQuota
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import controller_of
from kubetide.api.objects.scheme import HPAS, NODES, PODS, RESOURCE_QUOTAS, Resource
from kubetide.api.values.selectors import Selector, parse_selector
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.recommend.core.templates import Custom, Found, Owner, Templated, made_by, read, referrers, workload_of
from kubetide.recommend.core.workloads import Bounds, Sizes, Workload, sizes
from kubetide.vpa.core.policy import CPU, MEMORY

T = TypeVar("T")


def _built_in(group: str, plural: str, kind: str) -> Resource[Templated]:
    return Resource(group, "v1", plural, kind, Templated)


BUILT_IN = (
    _built_in("apps", "deployments", "Deployment"),
    _built_in("apps", "statefulsets", "StatefulSet"),
    _built_in("apps", "daemonsets", "DaemonSet"),
    _built_in("apps", "replicasets", "ReplicaSet"),
    _built_in("batch", "jobs", "Job"),
    _built_in("batch", "cronjobs", "CronJob"),
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
    """In lower case, as `kind_named` has them; empty means all."""
    name: str = ""
    """Only workloads of this name."""


def kind_named(text: str) -> str:
    """Return a kind in lower case, and what kubectl's short names stand for."""
    name = text.lower()
    return _SHORT.get(name, name)


def _names(resource: Resource[Any]) -> set[str]:
    """Return the names of a kind: `rollout`, `rollouts`, each also with its group."""
    bare = {resource.kind.lower(), resource.plural}
    return bare | {f"{name}.{resource.group}" for name in bare}


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

    kinds: list[Resource[Any]] = [*BUILT_IN, *await _custom(client, state.problems)]
    # One of several clusters need not have every kind.
    if not cluster and (unknown := selection.kinds - {name for kind in kinds for name in _names(kind)}):
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
    objects = [read(kind, each) for kind, task in zip(kinds, tasks, strict=True) for each in task.result()]
    state.pods, state.nodes = list(pods.result()), list(nodes.result())
    by_owner, makes = _owned(objects, state.pods)
    listed_by = {each.key: each for each in objects}
    targets = _targets(hpas.result()) if HPAS not in refused else None
    makers = referrers(objects)
    referring = {maker.key for maker in makers.values()}
    selector = parse_selector(selection.labels)
    for each in objects:
        owned = each.resource.kind in _OWNED and each.manager is not None
        maker, manager = makers.get(each.key), listed_by.get(each.manager) if each.manager is not None else None
        asked = tuple(one for one in (each, maker, manager) if one is not None)
        if owned or each.key in referring or not any(_wanted(one, selection, selector) for one in asked):
            continue
        mine = [pod for one in (each, maker) if one is not None for pod in by_owner.get(one.key, ())]
        found = workload_of(each, mine)
        # Of a resource without pods, what an operator makes of it has the rows.
        if found is not None and (found.containers[0].name or each.key not in makes):
            found = found if maker is None else made_by(found, maker)
            goals = None if targets is None else next((targets[one.key] for one in asked if one.key in targets), {})
            state.workloads.append(replace(found, cluster=cluster, utilization=goals))
    state.bounds = Bounds(largest_node=_largest(state.nodes), quota_left=_left(quotas.result()))
    return state


async def _custom(client: Client, problems: list[str]) -> Sequence[Resource[Custom]]:
    """Return the custom resources that have a scale subresource."""
    found: list[Resource[Custom]] = []
    for group, versions in (await client.discovery.groups()).items():
        if group in _NOT_CUSTOM or group.endswith(".k8s.io") or not versions:
            continue
        try:
            listed = await client.discovery.resources(group, versions[0])
        except KubetideError as error:
            problems.append(f"{group} cannot be discovered: {' '.join(str(error).split())}")
            continue
        found += [
            Resource(each.group, each.version, each.plural, each.kind, Custom)
            for each in listed
            if each.scale_type is not None and each.namespaced
        ]
    return found


def _wanted(each: Found, selection: Selection, selector: Selector) -> bool:
    kind = not selection.kinds or not selection.kinds.isdisjoint(_names(each.resource))
    return kind and selection.name in ("", each.meta.name) and selector.matches(each.meta.labels or {})


def _owned(objects: Sequence[Found], pods: Sequence[Pod]) -> tuple[dict[Owner, list[Pod]], set[Owner]]:
    """Return the pods of each workload, and who makes workloads that have rows of their own."""
    owners = {each.key: each.manager for each in objects}
    makes = {each.manager for each in objects if each.manager is not None and each.resource.kind not in _OWNED}
    by_owner: dict[Owner, list[Pod]] = {}
    for pod in pods:
        if (top := _top(pod, owners)) is not None:
            by_owner.setdefault(top, []).append(pod)
    return by_owner, makes


def _top(pod: Pod, owners: Mapping[Owner, Owner | None]) -> Owner | None:
    """Return the topmost workload above a pod that was listed."""
    owner = controller_of(pod.metadata)
    at = (pod.metadata.namespace, owner.kind, owner.name) if owner is not None else None
    if at is None or at not in owners:
        return None
    while at[1] in _OWNED and (above := owners[at]) is not None and above in owners:
        at = above
    return at


def _targets(hpas: Sequence[HorizontalPodAutoscaler]) -> Mapping[Owner, Mapping[str, int]]:
    found: dict[Owner, dict[str, int]] = {}
    for hpa in hpas:
        target = hpa.spec.scale_target_ref
        for metric in hpa.spec.metrics or ():
            each = metric.container_resource
            source = metric.resource or each
            if source is not None and source.target.average_utilization:
                key = (hpa.metadata.namespace, target.kind, target.name)
                name = source.name if each is None else f"{each.name}/{each.container}"
                found.setdefault(key, {})[name] = source.target.average_utilization
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
