"""`kubetide explain`: why an autoscaler, a pod or a node is the size it is.

The running controller knows best: it has the history. Without one the decision is recomputed from the cluster, which
says what would be decided now, and that the history is missing.
"""

import asyncio
import importlib
import os
from dataclasses import dataclass
from typing import Any

import aiohttp
import click

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import decode_raw, encode
from kubetide.cli.main import Invocation
from kubetide.clock import SystemClock
from kubetide.config import Settings, load
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.connect import connect
from kubetide.kube.client.kubeconfig import load as access
from kubetide.kube.client.settings import KubeSettings
from kubetide.settings import COMPONENTS


@dataclass(frozen=True, slots=True)
class _Kind:
    """Who explains an object: the component, the module that recomputes, and the ports its controller may listen on."""

    component: str
    recomputer: str
    renderer: str
    namespaced: bool
    ports: tuple[int, ...]


KINDS = {
    "hpa": _Kind("hpa", "kubetide.hpa.recompute", "kubetide.hpa.explain", True, (8941, 8080)),
    "vpa": _Kind(
        "recommender", "kubetide.vpa.recommender.loop", "kubetide.vpa.recommender.explain", True, (8942, 8080)
    ),
    "pod": _Kind("updater", "kubetide.vpa.updater.loop", "kubetide.vpa.updater.explain", True, (8943, 8080)),
    "node": _Kind("slo", "kubetide.slo.cluster_view", "kubetide.cli.explain.node", False, (8080, 9316)),
}


@click.command("explain", short_help="Why an autoscaler, a pod or a node is the size it is.")
@click.argument("kind", type=click.Choice(sorted(KINDS)))
@click.argument("name", metavar="[NAMESPACE/]NAME")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--address", help="Where the controller serves /explain, such as http://127.0.0.1:8941.")
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
    trace = asyncio.run(_explain(invocation, kind, found, key, address, token, recompute=recompute))
    if output == "json":
        click.echo(encode(trace))
        return
    text: str = importlib.import_module(found.renderer).render(trace)
    click.echo(text)
    if trace.get("recomputed"):
        click.echo("\nNo running controller answered: recomputed from the cluster; history is missing.", err=True)


def _context_namespace(invocation: Invocation) -> str:
    """Return the namespace of the chosen context; a running controller can be asked without any."""
    try:
        return access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").namespace
    except KubetideError:
        return "default"


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
        addresses = (address,) if address else tuple(f"http://127.0.0.1:{port}" for port in found.ports)
        merged: dict[str, Any] = {}
        for each in addresses:
            trace = await ask(each, kind, key, token)
            if trace is not None and kind != "node":
                return trace
            merged |= trace or {}  # of a node the cluster's controller knows one half and its agent the other
        if merged:
            return merged
        if address:
            raise KubetideError(f"{address} does not know {kind} {key}")
    return await _recompute(invocation, found, key)


async def ask(address: str, kind: str, key: ObjectKey, token: str | None) -> dict[str, Any] | None:
    """Ask a controller; None if nobody answers there, or it does not know the object."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=5)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(f"{address.rstrip('/')}/explain/{kind}/{key}") as response,
        ):
            if response.status in (401, 403):
                raise KubetideError(f"{address} refuses to explain: pass --token")
            if response.status != 200:
                return None
            found = decode_raw(await response.read(), what="explanation")
            return found if isinstance(found, dict) else None
    except (aiohttp.ClientError, TimeoutError, InvalidInput):
        return None


async def _recompute(invocation: Invocation, found: _Kind, key: ObjectKey) -> dict[str, Any]:
    clock = SystemClock()
    flags = {} if invocation.kubeconfig is None else {"kubeconfig": str(invocation.kubeconfig)}
    if invocation.context:
        flags["context"] = invocation.context
    client, _ = connect(load(KubeSettings, flags=flags, env=os.environ), clock=clock)
    settings: Settings = load(COMPONENTS[found.component], env=os.environ)
    try:
        trace: dict[str, Any] = await importlib.import_module(found.recomputer).recompute(client, clock, settings, key)
    finally:
        await client.close()
    return {**trace, "recomputed": True}
