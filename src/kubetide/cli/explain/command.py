"""`kubetide explain`: why an autoscaler, a pod or a node is the size it is.

The running controller knows best: it has the history. Without one the decision is recomputed from the cluster, which
says what would be decided now, and that the history is missing.
"""

import asyncio
import importlib
import os
from dataclasses import dataclass
from typing import Any

import click

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import HPAS, NODES, PODS, VPAS, Resource
from kubetide.api.values.codec import decode_raw, encode
from kubetide.cli.asking import get_json, join
from kubetide.cli.main import Invocation
from kubetide.cli.name_completion import complete_objects
from kubetide.cli.places import ask_everywhere
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
class _Kind:
    """Who explains an object: the component, the module that recomputes, and the one that shows it."""

    component: str
    resource: Resource[Any]
    recomputer: str
    renderer: str
    namespaced: bool


KINDS = {
    "hpa": _Kind("hpa", HPAS, "kubetide.hpa.recompute", "kubetide.hpa.explain", True),
    "vpa": _Kind("recommender", VPAS, "kubetide.vpa.recommender.loop", "kubetide.vpa.recommender.explain", True),
    "pod": _Kind("updater", PODS, "kubetide.vpa.updater.loop", "kubetide.cli.explain.pod", True),
    "node": _Kind("slo", NODES, "kubetide.slo.cluster_view", "kubetide.cli.explain.node", False),
}

COLOCATION = _Kind("colocation", PODS, "kubetide.slo.colocation.explain", "kubetide.cli.explain.pod", True)
"""What a pod became at creation; noted on the pod, so that no controller has to be asked."""


@click.command("explain", short_help="Why an autoscaler, a pod or a node is the size it is.")
@click.argument("kind", type=click.Choice(sorted(KINDS)))
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=complete_objects)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--address", help="Where the controller serves /explain, such as 127.0.0.1:8941.")
@click.option("--token", envvar="KUBETIDE_PROCESS_EXPLAIN_TOKEN", help="Bearer token for /explain.")
@click.option("--recompute", is_flag=True, help="Do not ask a controller; compute from the cluster.")
@click.pass_obj
def command(
    invocation: Invocation, kind: str, name: str, output: str, address: str | None, token: str | None, recompute: bool
) -> None:
    """Explain the last decision about an object, with everything that went into it."""
    found = KINDS[kind]
    key = ObjectKey.parse(name)
    if found.namespaced and not key.namespace:
        key = ObjectKey(invocation.namespace or _context_namespace(invocation), key.name)
    trace = asyncio.run(_explained(invocation, kind, found, key, address, token, recompute=recompute))
    if trace.get("recomputed"):
        # Before the answer and in either form: a number without its history must not pass for the controller's own.
        click.secho(f"RECOMPUTED: {trace['warning']}", fg="yellow", bold=True, err=True)
    if output == "json":
        click.echo(encode(trace))
        return
    text: str = importlib.import_module(found.renderer).render(trace)
    click.echo(text)


def _context_namespace(invocation: Invocation) -> str:
    """Return the namespace of the chosen context; a running controller can be asked without any."""
    try:
        return access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").namespace
    except KubetideError:
        return "default"


async def _explained(
    invocation: Invocation,
    kind: str,
    found: _Kind,
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
    found: _Kind,
    key: ObjectKey,
    address: str | None,
    token: str | None,
    *,
    recompute: bool,
) -> dict[str, Any]:
    if not recompute:
        halves = await _ask(invocation, kind, key, address, token)
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


async def _ask(
    invocation: Invocation, kind: str, key: ObjectKey, address: str | None, token: str | None
) -> list[dict[str, Any]]:
    """Ask the process at the address, or without one everybody who may know."""
    path = f"/explain/{kind}/{key}"
    if address:
        found = [await get_json(address, path, token=token or "", seconds=5)]
    else:
        node, pod = (key.name if kind == "node" else ""), (key if kind == "pod" else None)
        found = [answer for _, answer in await ask_everywhere(invocation, path, token=token or "", node=node, pod=pod)]
    return [answer for answer in found if isinstance(answer, dict)]


async def _exists(client: Client, kind: str, found: _Kind, key: ObjectKey) -> None:
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


async def _recompute(invocation: Invocation, kind: str, found: _Kind, key: ObjectKey) -> dict[str, Any]:
    clock = SystemClock()
    flags = {} if invocation.kubeconfig is None else {"kubeconfig": str(invocation.kubeconfig)}
    if invocation.context:
        flags["context"] = invocation.context
    client, _ = connect(load(KubeSettings, flags=flags, env=os.environ), clock=clock)
    settings: Settings = load(COMPONENTS[found.component], env=os.environ)
    try:
        await _exists(client, kind, found, key)
        trace: dict[str, Any] = await importlib.import_module(found.recomputer).recompute(client, clock, settings, key)
    finally:
        await client.close()
    warning = "no running controller answered; computed from the cluster as it is now, its history is missing"
    return {**trace, "recomputed": True, "warning": warning}
