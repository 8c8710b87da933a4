"""Writes the VPAs of one namespace: for the controller from its caches, for `kubetide enable` from a fresh reading."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.meta import ObjectMeta, TypedObject
from kubetide.api.objects.scheme import HPAS, VPAS, Resource, untyped
from kubetide.api.values.patch import MergePatch
from kubetide.errors import SettingsError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound
from kubetide.kube.owners import WELL_KNOWN
from kubetide.vpa.policies.core.plan import Observation, Plan, TargetWorkload


@dataclass(frozen=True, slots=True)
class Written:
    """One write that was done."""

    action: str
    name: str


def sized(kinds: Sequence[str]) -> list[Resource[TypedObject]]:
    """Return the resources of kinds; of their objects only the metadata is read."""
    known: Mapping[str, Resource[Any]] = {kind.lower(): resource for kind, resource in WELL_KNOWN.items()}
    found = []
    for kind in kinds:
        resource = known.get(kind.lower())
        if resource is None:
            raise SettingsError(f"{kind!r} is none of {', '.join(WELL_KNOWN)}", field="policy-kinds")
        found.append(untyped(resource.group, resource.version, resource.plural, resource.kind))
    return found


async def read_namespace(client: Client, namespace: ObjectMeta, kinds: Sequence[str]) -> Observation:
    """Read one namespace as it is now; raises where anything of it may not be read."""
    name = namespace.name
    async with asyncio.TaskGroup() as group:
        workloads = [
            (each, group.create_task(client.list(each, namespace=name), name=f"policy/{each}")) for each in sized(kinds)
        ]
        vpas = group.create_task(client.list(VPAS, namespace=name), name="policy/vpas")
        hpas = group.create_task(client.list(HPAS, namespace=name), name="policy/hpas")
    return Observation(
        namespace=namespace,
        targets=[
            TargetWorkload(each.api_version, each.kind, one.metadata)
            for each, task in workloads
            for one in task.result().items
        ],
        vpas=vpas.result().items,
        unreadable=frozenset(each.key.name for each in vpas.result().rejected),
        hpas=hpas.result().items,
    )


async def write_plan(client: Client, namespace: str, made: Plan) -> list[Written]:
    """Write what a plan says; what somebody else did first is left to the next reconcile."""
    done: list[Written] = []
    for body in made.create:
        try:
            await client.create(VPAS, body, namespace=namespace)
        except AlreadyExists:
            continue
        done.append(Written("create", body["metadata"]["name"]))
    for name, change in made.change:
        try:
            await client.patch(VPAS, name, MergePatch(change), namespace=namespace)
        except NotFound:
            continue
        done.append(Written("change", name))
    for vpa in made.delete:
        meta = vpa.metadata
        try:
            # Only the very one that was looked at: whoever wanted to keep it took its label away meanwhile.
            await client.delete(
                VPAS, meta.name, namespace=namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except (NotFound, Conflict):
            continue
        done.append(Written("delete", meta.name))
    return done
