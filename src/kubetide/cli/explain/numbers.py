"""The numbers of an explanation: from the running controller, or recomputed from the cluster where none answers.

The running controller knows best: it has the history. A recomputed decision says what would be decided now, and that
the history is missing.
"""

import asyncio
import importlib
import os
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, NODES, PODS, STATEFUL_SETS, VPAS, Resource
from kubetide.api.values.codec import decode_raw
from kubetide.cli.asking import get_json, join
from kubetide.cli.main import Invocation
from kubetide.clock import SystemClock
from kubetide.config import Settings, load
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.errors import NotFound
from kubetide.kube.client.kubeconfig import load as access
from kubetide.kube.client.settings import KubeSettings
from kubetide.settings import COMPONENTS


@dataclass(frozen=True, slots=True)
class Kind:
    """Who explains an object: the component, the module that recomputes, and the one that shows it."""

    component: str
    resource: Resource[Any]
    recomputer: str
    renderer: str
    namespaced: bool


KINDS = {
    "hpa": Kind("hpa", HPAS, "kubetide.hpa.recompute", "kubetide.hpa.explain", True),
    "vpa": Kind("recommender", VPAS, "kubetide.vpa.recommender.loop", "kubetide.vpa.recommender.explain", True),
    "pod": Kind("updater", PODS, "kubetide.vpa.updater.loop", "kubetide.cli.explain.pod", True),
    "node": Kind("slo", NODES, "kubetide.slo.cluster_view", "kubetide.cli.explain.node", False),
    "deploy": Kind("", DEPLOYMENTS, "", "kubetide.cli.explain.workload", True),
    "statefulset": Kind("", STATEFUL_SETS, "", "kubetide.cli.explain.workload", True),
}
COLOCATION = Kind("colocation", PODS, "kubetide.slo.colocation.explain", "kubetide.cli.explain.pod", True)
"""What a pod became at creation; noted on the pod, so that no controller has to be asked."""


_PORTS = (8941, 8942, 8943, 8944, 8080, 9316)
"""The ports of the components, the SLO controller's and the agent's last."""


def client_of(invocation: Invocation) -> Client:
    """Return a client of the cluster that a command line names."""
    flags = {} if invocation.kubeconfig is None else {"kubeconfig": str(invocation.kubeconfig)}
    if invocation.context:
        flags["context"] = invocation.context
    return connect(load(KubeSettings, flags=flags, env=os.environ), clock=SystemClock())[0]


async def explained(
    invocation: Invocation,
    kind: str,
    found: Kind,
    key: ObjectKey,
    address: str | None,
    token: str | None,
    *,
    recompute: bool,
) -> dict[str, Any]:
    """Explain an object; a pod also by the colocation profiles noted on it, whether or not a VPA is for it."""
    if kind != "pod":
        return await _explain(invocation, kind, found, key, address, token, recompute=recompute)
    colocation: dict[str, Any] = {}
    try:
        # What a profile made of a pod has no history: reading the pod is not second best.
        colocation = {**await _recompute(invocation, kind, COLOCATION, key), "recomputed": False}
        return colocation | await _explain(invocation, kind, found, key, address, token, recompute=recompute)
    except KubetideError:
        if colocation:
            return colocation
        return await _explain(invocation, kind, found, key, address, token, recompute=recompute)


def places(invocation: Invocation) -> tuple[str, ...]:
    """Return where a kubetide may be running here: where the kubeconfig says, then the ports of the components.

    Several components may share one process, on the port of whichever was named first, so all ports are tried.
    """
    try:
        announced = access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").explain
    except KubetideError:
        announced = ""
    ports = tuple(f"127.0.0.1:{port}" for port in _PORTS)
    return tuple(dict.fromkeys((announced, *ports))) if announced else ports


async def _explain(
    invocation: Invocation,
    kind: str,
    found: Kind,
    key: ObjectKey,
    address: str | None,
    token: str | None,
    *,
    recompute: bool,
) -> dict[str, Any]:
    if not recompute:
        addresses = (address,) if address else places(invocation)
        answers = await asyncio.gather(*(ask(each, kind, key, token, required=bool(address)) for each in addresses))
        halves = [answer for answer in answers if answer is not None]
        controller = next((half for half in halves if not _is_of_agent(kind, half)), None)
        agent = next((half for half in halves if _is_of_agent(kind, half)), None)
        if (trace := join(kind, controller, agent)) is not None:
            return trace
        if address:
            raise KubetideError(f"{address} does not know {kind} {key}")
    return await _recompute(invocation, kind, found, key)


def _is_of_agent(kind: str, answer: dict[str, Any]) -> bool:
    """Whether an answer is that of a node's agent alone."""
    return ("cgroup" in answer and "vpa" not in answer) if kind == "pod" else (kind == "node" and "node" in answer)


async def ask(address: str, kind: str, key: ObjectKey, token: str | None, *, required: bool) -> dict[str, Any] | None:
    """Ask a controller; None if it does not know the object, or nobody answers though nobody has to."""
    try:
        found = await get_json(address, f"/explain/{kind}/{key}", token=token or "", seconds=5)
    except KubetideError:
        if required:
            raise
        return None  # any other program may listen on a port of ours
    return found if isinstance(found, dict) else None


async def _exists(client: Client, kind: str, found: Kind, key: ObjectKey) -> None:
    """Raise, with the fix, if there is no such object or nothing of its kind: waiting for it would help nobody."""
    if kind in ("vpa", "pod"):
        path = f"/apis/{VPAS.api_version}"
        try:
            listed = decode_raw((await client.request("GET", path)).body, what=path)
        except NotFound:
            listed = {}
        if VPAS.plural not in {each["name"] for each in listed.get("resources") or ()}:
            fix = f"kubetide manifests {found.component} | kubectl apply -f -"
            raise KubetideError(f"{VPAS.plural}.{VPAS.group} is not installed in this cluster; fix: {fix}")
    try:
        await client.get_raw(found.resource, key.name, namespace=key.namespace or None)
    except NotFound as error:
        where = f" in namespace {key.namespace}" if found.namespaced else ""
        raise KubetideError(f"there is no {kind} {key.name}{where}") from error


async def _recompute(invocation: Invocation, kind: str, found: Kind, key: ObjectKey) -> dict[str, Any]:
    clock = SystemClock()
    client = client_of(invocation)
    settings: Settings = load(COMPONENTS[found.component], env=os.environ)
    try:
        await _exists(client, kind, found, key)
        trace: dict[str, Any] = await importlib.import_module(found.recomputer).recompute(client, clock, settings, key)
    finally:
        await client.close()
    warning = "no running controller answered; computed from the cluster as it is now, its history is missing"
    return {**trace, "recomputed": True, "warning": warning}
