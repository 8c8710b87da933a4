"""Where the running kubetide is that can answer a question: on this machine, or in a pod of the cluster.

    the kubeconfig     `kubetide up` and `kubetide demo --http` write their address into it
    Leases             the holder announces where it serves (`kube.control.announcement`): asked on loopback where it
                       is this machine, through a port-forward where it is a pod, at its address where a token is given
    agents             the pod of the DaemonSet on the node that the question is about, through a port-forward
    ports              the ports of the components on loopback, for a process that announces nothing

All of them are asked at once. Looking must not cost more than it brings: the cluster gets a few seconds to say who
runs where, and what it does not say is not asked.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kubetide.api.objects.core import Lease
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, PODS
from kubetide.cli.asking import Read, get_json, read_json
from kubetide.cli.main import Invocation
from kubetide.clock import SystemClock
from kubetide.config import load
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import load as access
from kubetide.kube.client.port_forward import get as get_forwarded
from kubetide.kube.client.settings import KubeSettings
from kubetide.kube.control.announcement import read_announcement
from kubetide.kube.control.shards import GROUP_LABEL, is_together
from kubetide.settings import COMPONENTS

PORTS = (8941, 8942, 8943, 8944, 8080, 9316)
"""The ports of the components, the SLO controller's and the agent's last."""
AGENT_PORT = 9316
AGENT_LABELS = "app.kubernetes.io/name=kubetide,app.kubernetes.io/component=node"
ELECTED = ("hpa", "recommender", "updater", "slo")
LOOK_SECONDS = 3.0
ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process can be asked: at an address, or behind a port of a pod."""

    address: str = ""
    pod: ObjectKey | None = None
    port: int = 0

    def __str__(self) -> str:
        return self.address if self.pod is None else f"pod {self.pod} port {self.port}"


def client_of(invocation: Invocation) -> Client:
    """Return a client of the cluster that a command line names."""
    flags = {} if invocation.kubeconfig is None else {"kubeconfig": str(invocation.kubeconfig)}
    if invocation.context:
        flags["context"] = invocation.context
    return connect(load(KubeSettings, flags=flags, env=os.environ), clock=SystemClock())[0]


async def ask_everywhere(
    invocation: Invocation,
    path: str,
    *,
    token: str = "",
    node: str = "",
    pod: ObjectKey | None = None,
    problems: list[str] | None = None,
) -> list[tuple[Place, Any]]:
    """Return who answers a question, and what, in the order of the places; silence and refusals are left out.

    `node` or `pod` says which node's agent may know about it too. `problems` takes why somebody who announced itself
    could not be asked.
    """
    client: Client | None = None
    with suppress(KubetideError):
        client = client_of(invocation)
    try:
        return await ask_with(
            client, path, local=local_places(invocation), token=token, node=node, pod=pod, problems=problems
        )
    finally:
        if client is not None:
            await client.close()


async def ask_with(
    client: Client | None,
    path: str,
    *,
    local: Sequence[Place] = (),
    token: str = "",
    node: str = "",
    pod: ObjectKey | None = None,
    problems: list[str] | None = None,
    read: Read = read_json,
) -> list[tuple[Place, Any]]:
    """Return the same, asked as whoever a client stands for; `local` are places on this machine."""
    noted = problems if problems is not None else []
    distinct = await _found(local, client, token=token, node=node, pod=pod)
    answers = await asyncio.gather(*(_ask(place, path, token, client, noted, read) for place in distinct))
    return [(place, answer) for place, answer in zip(distinct, answers, strict=True) if answer is not None]


async def find_places(invocation: Invocation, *, token: str = "") -> list[Place]:
    """Return where a process may be asked, for who has many questions."""
    client: Client | None = None
    with suppress(KubetideError):
        client = client_of(invocation)
    try:
        return await _found(local_places(invocation), client, token=token)
    finally:
        if client is not None:
            await client.close()


async def ask_quietly(invocation: Invocation, place: Place, path: str, *, token: str = "") -> Any:
    """Return what the process at a place answers, None where it does not answer or does not know."""
    with suppress(KubetideError):
        return await ask_at(invocation, place, path, token=token)
    return None


async def ask_at(invocation: Invocation, place: Place, path: str, *, token: str = "") -> Any:
    """Return what the process at a place answers, None where the question concerns nothing known there."""
    if place.pod is None:
        return await get_json(place.address, path, token=token)
    client = client_of(invocation)
    try:
        return await _forwarded(place, path, client)
    finally:
        await client.close()


async def _found(
    local: Sequence[Place], client: Client | None, *, token: str, node: str = "", pod: ObjectKey | None = None
) -> list[Place]:
    places = list(local)
    if client is not None:
        with suppress(KubetideError, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                places += await _in_cluster(client, token=token, node=node, pod=pod)
    return list(dict.fromkeys(places))


def local_places(invocation: Invocation) -> Sequence[Place]:
    """Return where a process on this machine may be: what the kubeconfig announces, and the ports of components."""
    announced = ""
    with suppress(KubetideError):
        announced = access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").explain
    ports = [Place(f"127.0.0.1:{port}") for port in PORTS]
    return [Place(announced), *ports] if announced else ports


async def _in_cluster(client: Client, *, token: str, node: str, pod: ObjectKey | None) -> list[Place]:
    looks = [_holders(client, component, token) for component in ELECTED]
    found = await asyncio.gather(*looks, _agent(client, node, pod))
    return list(chain.from_iterable(found))


async def _holders(client: Client, component: str, token: str) -> list[Place]:
    """Return where the holder of a component's Lease serves, or all replicas that share its work."""
    settings: Any = load(COMPONENTS[component], env=os.environ)
    group = getattr(settings, "lease_name", "") or settings.leader_elect_resource_name
    namespace = settings.leader_elect_resource_namespace
    found: list[Lease] = []
    with suppress(KubetideError):
        found.append(await client.get(LEASES, group, namespace=namespace))
    if found and is_together(found[0].spec.holder_identity, group):
        with suppress(KubetideError):
            members = await client.list(LEASES, namespace=namespace, label_selector=f"{GROUP_LABEL}={group}")
            found = list(members.items)
    places = [_place(lease, token) for lease in found]
    return [place for place in places if place is not None]


def _place(lease: Lease, token: str) -> Place | None:
    """Return where the holder of a Lease serves; None where it does not say or cannot be asked."""
    announced = read_announcement(lease.metadata.annotations)
    if announced is None or not lease.spec.holder_identity:
        return None
    if announced.pod:
        return Place(pod=ObjectKey.parse(announced.pod), port=announced.port)
    if announced.loopback:
        return Place(announced.loopback)
    return Place(announced.address) if token else None


async def _agent(client: Client, node: str, pod: ObjectKey | None) -> list[Place]:
    """Return the pod of the agent on a node, or on the node of a pod."""
    try:
        if pod is not None:
            node = (await client.get(PODS, pod.name, namespace=pod.namespace)).spec.node_name or ""
        if not node:
            return []
        agents = await client.list(PODS, label_selector=AGENT_LABELS, field_selector=f"spec.nodeName={node}")
    except KubetideError:
        return []
    first = [agent.metadata for agent in agents.items[:1]]
    return [Place(pod=ObjectKey(meta.namespace, meta.name), port=AGENT_PORT) for meta in first]


async def _ask(place: Place, path: str, token: str, client: Client | None, problems: list[str], read: Read) -> Any:
    """Return an answer, or None: any other program may listen on a port of ours."""
    try:
        if place.pod is None:
            return await get_json(place.address, path, token=token, seconds=ASK_SECONDS, read=read)
        return None if client is None else await _forwarded(place, path, client, read)
    except KubetideError as error:
        if place.pod is not None:
            problems.append(f"{place} runs but cannot be asked: {error}")
        return None


async def _forwarded(place: Place, path: str, client: Client, read: Read = read_json) -> Any:
    assert place.pod is not None, "an address is asked directly"
    if not isinstance(client.transport, HttpTransport):
        return None
    answer = await get_forwarded(client.transport, place.pod, place.port, path, seconds=ASK_SECONDS)
    return read(str(place), answer.status, answer.body)
