"""Reads what verdicts look at, once, from any cluster.

A resource that may not be listed is named in the view, with the reason; one that the server does not serve is absent,
which is something else. Times are compared with the server's own clock, for a simulated cluster has a time of its own.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.scheme import (
    DAEMON_SETS,
    DEPLOYMENTS,
    HPAS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODE_METRICS,
    NODES,
    PDBS,
    POD_METRICS,
    PODS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    VPAS,
    Resource,
)
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import Listing
from kubetide.kube.client.errors import NotFound, ServiceUnavailable
from kubetide.verdicts.core.view import ClusterView
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE

T = TypeVar("T", bound=TypedObject)

STORED: Mapping[str, Resource[Any]] = {
    "hpas": HPAS,
    "vpas": VPAS,
    "pdbs": PDBS,
    "pods": PODS,
    "deployments": DEPLOYMENTS,
    "stateful_sets": STATEFUL_SETS,
    "daemon_sets": DAEMON_SETS,
    "nodes": NODES,
    "quotas": RESOURCE_QUOTAS,
    "leases": LEASES,
    "webhooks": MUTATING_WEBHOOKS,
}
"""The members of a view that are objects of the API server, and what they are lists of."""

MEMBERS: Mapping[str, Resource[Any]] = {**STORED, "pod_metrics": POD_METRICS, "node_metrics": NODE_METRICS}
_EVERYWHERE = frozenset({"leases"})
"""Of these one object is asked for by name, wherever it is."""

_ONLY_WHOLE = frozenset({"nodes", "node_metrics"})
"""What is free on a node can be told only with the pods of all namespaces."""


class Lists(Protocol):
    """Whoever has the objects of a resource: a client, or a cache before it."""

    async def list(
        self, resource: Resource[T], *, namespace: str | None = None, field_selector: str = ""
    ) -> Listing[T]: ...


async def read_cluster(
    client: Client,
    clock: Clock,
    *,
    namespace: str = "",
    whole: bool = True,
    lists: Lists | None = None,
    before: ClusterView | None = None,
) -> ClusterView:
    """Read a cluster, or the objects of one namespace; `whole` adds all nodes, and all pods for what is free there.

    `lists` has the objects, the server itself unless given; of pods that a view `before` holds too, what was worked out
    is kept. Raises `Unavailable` where the server does not answer at all.
    """
    source: Lists = lists or client
    now = await _server_time(client, clock)
    absent: set[str] = set()
    unreadable: dict[str, str] = {}

    async def listed(member: str, resource: Resource[Any]) -> tuple[Any, ...]:
        if member in _ONLY_WHOLE and not whole:
            return ()
        everywhere = member in _EVERYWHERE or (member == "pods" and whole)
        only = f"metadata.name={ADMISSION_LEASE}" if member == "leases" else ""
        try:
            listing = await source.list(
                resource, namespace=None if everywhere else namespace or None, field_selector=only
            )
        except NotFound:
            absent.add(str(resource))
            return ()
        except ServiceUnavailable as error:
            # Registered, but whoever should serve it does not: known to be missing, as if it were not there.
            if member == "pod_metrics":
                absent.add(str(resource))
            else:
                unreadable[str(resource)] = one_line(error)
            return ()
        except KubetideError as error:
            unreadable[str(resource)] = one_line(error)
            return ()
        if listing.rejected:
            unreadable[str(resource)] = f"{len(listing.rejected)} objects cannot be decoded"
        return listing.items

    async with asyncio.TaskGroup() as group:
        tasks = {
            member: group.create_task(listed(member, resource), name=f"verdicts/{member}")
            for member, resource in MEMBERS.items()
        }
    found: dict[str, Any] = {member: task.result() for member, task in tasks.items()}
    return ClusterView(
        now=now,
        absent=frozenset(absent),
        unreadable=dict(sorted(unreadable.items())),
        whole=whole,
        **found,
        pod_facts={} if before is None else before.facts_for(found["pods"]),
    )


async def _server_time(client: Client, clock: Clock) -> datetime:
    """Return the time of the server; the local one where it does not tell."""
    answer = await client.request("GET", "/version")
    told = {name.lower(): value for name, value in answer.headers.items()}.get("date", "")
    try:
        return parsedate_to_datetime(told)
    except ValueError:
        return clock.now()


def one_line(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split())
