"""Names of objects for the shell: read from the cluster of the current context while somebody presses Tab.

A completion that waits or complains is worse than none: the cluster gets two seconds, and whatever goes wrong, nothing
is offered. Only names are read (as PartialObjectMetadata where the server can), a bounded number of them.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kubetide.cli.main import Invocation

SECONDS = 2.0
MOST = 500
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def complete_objects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names of the kind typed before: bare in the chosen namespace, with their namespace elsewhere."""
    kind = ctx.params.get("kind") or ""
    return _offered(ctx, kind, incomplete)


def complete_nodes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names of nodes."""
    return _offered(ctx, "node", incomplete)


def complete_namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names of namespaces."""
    return _offered(ctx, "namespace", incomplete)


def _offered(ctx: click.Context, kind: str, incomplete: str) -> list[str]:
    from kubetide.errors import KubetideError

    with suppress(KubetideError, TimeoutError, OSError):
        return asyncio.run(_names(_invocation(ctx), kind, incomplete))
    return []


def _invocation(ctx: click.Context) -> "Invocation":
    """Return which cluster is meant; a shell has not called anything yet, so the words typed so far tell it."""
    from kubetide.cli.main import Invocation

    found = Invocation()
    chain = []
    step: click.Context | None = ctx
    while step is not None:
        chain.append(step)
        step = step.parent
    for each in reversed(chain):
        found = found.with_options(each.params)
    return found


async def _names(invocation: "Invocation", kind: str, incomplete: str) -> list[str]:
    from kubetide.api.objects import scheme
    from kubetide.cli.places import client_of
    from kubetide.clock import SystemClock
    from kubetide.kube.client.kubeconfig import load

    resources: dict[str, scheme.Resource[Any]] = {
        "hpa": scheme.HPAS,
        "vpa": scheme.VPAS,
        "pod": scheme.PODS,
        "node": scheme.NODES,
        "namespace": scheme.NAMESPACES,
        "deploy": scheme.DEPLOYMENTS,
        "deployment": scheme.DEPLOYMENTS,
        "statefulset": scheme.STATEFUL_SETS,
    }
    if kind not in resources:
        return []
    resource = resources[kind]
    within, slash, _ = incomplete.partition("/")
    client = client_of(invocation)
    try:
        async with asyncio.timeout(SECONDS):
            path = resource.path(namespace=within if slash and resource.namespaced else None)
            answer = await client.request("GET", path, query={"limit": str(MOST)}, accept=_METADATA, retries=0)
    finally:
        await client.close()
    own = (
        invocation.namespace
        or load(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").namespace
    )
    return _fitting(answer.body, resource.namespaced, own=own, incomplete=incomplete)


def _fitting(body: bytes, namespaced: bool, *, own: str, incomplete: str) -> list[str]:
    from kubetide.api.objects.meta import ObjectMeta
    from kubetide.api.values.codec import convert, decode_raw

    items = decode_raw(body, what="names").get("items") or ()
    metas = [convert(item.get("metadata") or {}, ObjectMeta) for item in items]
    if not namespaced:
        return [meta.name for meta in metas if meta.name.startswith(incomplete)]
    bare = [meta.name for meta in metas if meta.namespace == own and meta.name.startswith(incomplete)]
    full = (f"{meta.namespace}/{meta.name}" for meta in metas if "/" in incomplete or meta.namespace != own)
    return [*bare, *(name for name in full if name.startswith(incomplete))]
