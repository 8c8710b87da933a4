"""`kubetide uninstall`: the last step after `helm uninstall`, for what components made themselves."""

import asyncio
from typing import Any

import click

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DAEMON_SETS, DEPLOYMENTS, SERVICES, Resource
from kubetide.cli.main import Invocation
from kubetide.cli.places import client_of
from kubetide.clock import SystemClock
from kubetide.install.leftovers import MADE, Installed, Leftover, judge
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound


@click.command("uninstall", short_help="Remove what components made themselves and nobody uses any more.")
@click.option("--yes", is_flag=True, help="Remove it. Without this, say what would be removed.")
@click.pass_obj
def command(invocation: Invocation, yes: bool) -> None:
    """Remove registrations of webhooks, Leases and certificates that kubetide left behind.

    Run it after the workloads are gone (`helm uninstall`, `kubectl delete -f`). Nothing goes that is in use: a
    registration whose Service is still there, a Lease that somebody holds, a certificate whose component is installed.
    CRDs and their objects stay: they are yours.
    """
    for line in asyncio.run(_remove(invocation, invocation.namespace or "kube-system", yes=yes)):
        click.echo(line)


async def _remove(invocation: Invocation, namespace: str, *, yes: bool) -> list[str]:
    client = client_of(invocation)
    try:
        lines = []
        for leftover in await _look(client, namespace):
            name = f"{leftover.made.resource.kind} {leftover.namespace}/{leftover.made.name}".replace(" /", " ")
            if leftover.kept:
                lines.append(f"kept     {name}: {leftover.kept}")
                continue
            if yes:
                await client.delete(leftover.made.resource, leftover.made.name, namespace=leftover.namespace or None)
            lines.append(f"removed  {name}" if yes else f"would remove  {name} (--yes)")
        return lines or ["nothing is left behind"]
    finally:
        await client.close()


async def _look(client: Client, namespace: str) -> list[Leftover]:
    workloads = await _keys(client, DEPLOYMENTS, namespace) | await _keys(client, DAEMON_SETS, namespace)
    installed = Installed(workloads=workloads, services=await _keys(client, SERVICES, None))
    now = SystemClock().now()
    found = []
    for made in MADE:
        try:
            raw = await client.get_raw(made.resource, made.name, namespace=made.place(namespace) or None)
        except NotFound:
            continue
        found.append(judge(made, raw, namespace=namespace, installed=installed, now=now))
    return found


async def _keys(client: Client, resource: Resource[Any], namespace: str | None) -> frozenset[ObjectKey]:
    listed = await client.list(resource, namespace=namespace)
    return frozenset(ObjectKey(each.metadata.namespace, each.metadata.name) for each in listed.items)
