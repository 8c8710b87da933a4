"""The numbers of an explanation: from the running controller, or recomputed from the cluster where none answers.

The running controller knows best: it has the history. A recomputed decision says what would be decided now, and that
the history is missing.
"""

import importlib
import os
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, NODES, PODS, STATEFUL_SETS, VPAS, Resource
from kubetide.api.values.codec import decode_raw
from kubetide.cli.asking import get_json, join
from kubetide.cli.main import Invocation
from kubetide.cli.places import ask_everywhere, client_of
from kubetide.clock import SystemClock
from kubetide.config import Settings, load
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.plan.core.objects import PLANS
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
    "plan": Kind("plan", PLANS, "kubetide.plan.explain", "kubetide.plan.explain", True),
    "deploy": Kind("", DEPLOYMENTS, "", "kubetide.cli.explain.workload", True),
    "statefulset": Kind("", STATEFUL_SETS, "", "kubetide.cli.explain.workload", True),
}
COLOCATION = Kind("colocation", PODS, "kubetide.slo.colocation.explain", "kubetide.cli.explain.pod", True)
"""What a pod became at creation; noted on the pod, so that no controller has to be asked."""


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
    problems: list[str] = []
    if not recompute:
        halves = await _ask(invocation, kind, key, address, token, problems)
        controller = next((half for half in halves if not _is_of_agent(kind, half)), None)
        agent = next((half for half in halves if _is_of_agent(kind, half)), None)
        if (trace := join(kind, controller, agent)) is not None:
            return trace
        if address:
            raise KubetideError(f"{address} does not know {kind} {key}")
    trace = await _recompute(invocation, kind, found, key)
    return {**trace, "warning": "; ".join((trace["warning"], *problems))}


def _is_of_agent(kind: str, answer: dict[str, Any]) -> bool:
    """Whether an answer is that of a node's agent alone."""
    return ("cgroup" in answer and "vpa" not in answer) if kind == "pod" else (kind == "node" and "node" in answer)


async def _ask(
    invocation: Invocation, kind: str, key: ObjectKey, address: str | None, token: str | None, problems: list[str]
) -> list[dict[str, Any]]:
    """Ask the process at the address, or without one everybody who may know; note who could not be asked, and why."""
    path = f"/explain/{kind}/{key}"
    if address:
        found = [await get_json(address, path, token=token or "", seconds=5)]
    else:
        node, pod = (key.name if kind == "node" else ""), (key if kind == "pod" else None)
        answers = await ask_everywhere(invocation, path, token=token or "", node=node, pod=pod, problems=problems)
        found = [answer for _, answer in answers]
    return [answer for answer in found if isinstance(answer, dict)]


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
