"""`kubetide enable`: VPAs for all workloads of namespaces, by a label that `kubetide run policy` follows."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from kubetide.api.objects.core import Namespace
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.objects.scheme import NAMESPACES
from kubetide.api.values.codec import encode
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.selectors import parse_selector
from kubetide.cli.main import Invocation
from kubetide.cli.places import client_of
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.vpa.policies.core.plan import DISABLED, LABEL, MODES, RESOURCE_POLICY, Rules, made_here, plan
from kubetide.vpa.policies.core.plan import Plan as VpaPlan
from kubetide.vpa.policies.namespace_writer import read_namespace, sized, write_plan
from kubetide.vpa.policies.settings import PolicySettings

_KINDS = PolicySettings().kinds
_DONE = {"create": "made", "change": "changed", "delete": "deleted"}


@click.command("enable", short_help="VPAs for all workloads of namespaces, and their removal.")
@click.argument("namespaces", nargs=-1, metavar="[NAMESPACE]...")
@click.option("-l", "--selector", default="", help="Namespaces with these labels.")
@click.option(
    "--mode", type=click.Choice(MODES, case_sensitive=False), default="Off", show_default=True, help="Update mode."
)
@click.option(
    "--resource-policy",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A YAML file with the resourcePolicy of all VPAs.",
)
@click.option("--exclude", multiple=True, metavar="KIND/NAME", help="A workload that gets none; several times.")
@click.option("--remove", is_flag=True, help="Take the label away and delete the VPAs that kubetide made.")
@click.option("--dry-run", is_flag=True, help="Print what would be written.")
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    namespaces: tuple[str, ...],
    selector: str,
    mode: str,
    resource_policy: Path | None,
    exclude: tuple[str, ...],
    remove: bool,
    dry_run: bool,
) -> int:
    """Give every workload of NAMESPACEs, or of those that -l chooses, a VPA (mode Off: it recommends and does nothing).

    Namespaces get the label kubetide.io/vpa; `kubetide run policy` keeps VPAs in step with it. VPAs that kubetide did
    not make are never touched.
    """
    names = namespaces or ((invocation.namespace,) if invocation.namespace and not selector else ())
    if bool(names) == bool(selector):
        raise click.UsageError("name namespaces, or choose them with -l SELECTOR.")
    if remove and (exclude or resource_policy):
        raise click.UsageError("--remove goes without --exclude and --resource-policy.")
    parse_selector(selector)
    labels: dict[str, str | None] = {
        LABEL: None if remove else next(each for each in MODES if each.lower() == mode.lower())
    }
    annotations: dict[str, str | None] = {}
    if resource_policy is not None:
        annotations[RESOURCE_POLICY] = _policy(resource_policy)
    elif remove:
        annotations[RESOURCE_POLICY] = None
    excluded = [_workload(text) for text in exclude]
    change = {"metadata": {"labels": labels, **({"annotations": annotations} if annotations else {})}}
    return asyncio.run(_enable(invocation, names, selector, change, excluded, remove=remove, dry_run=dry_run))


async def _enable(
    invocation: Invocation,
    names: tuple[str, ...],
    selector: str,
    change: dict[str, Any],
    excluded: list[tuple[str, str]],
    *,
    remove: bool,
    dry_run: bool,
) -> int:
    client = client_of(invocation)
    try:
        chosen = await _chosen(client, names, selector)
        for namespace in chosen:
            await _exclude(client, namespace.name, excluded, dry_run=dry_run)
            after = await client.patch(NAMESPACES, namespace.name, MergePatch(change), dry_run=dry_run)
            seen = await read_namespace(client, after.metadata, _KINDS)
            if dry_run:
                seen = replace(seen, targets=[_as_excluded(each, excluded) for each in seen.targets])
            made = plan(seen, Rules())
            if remove:
                made = VpaPlan(delete=tuple(vpa for vpa in seen.vpas if made_here(vpa.metadata)))
            if made.problem:
                raise KubetideError(f"namespace {namespace.name}: {made.problem}")
            await _print(client, namespace.name, made, dry_run=dry_run)
        if not remove and not dry_run:
            click.echo("`kubetide run policy` keeps them in step with the workloads.")
    finally:
        await client.close()
    return 0


async def _chosen(client: Client, names: tuple[str, ...], selector: str) -> list[ObjectMeta]:
    if selector:
        listed = (await client.list(NAMESPACES, label_selector=selector)).items
        if not listed:
            raise InvalidInput("no namespace has these labels", field="-l")
        return sorted((each.metadata for each in listed), key=lambda each: each.name)
    found: list[Namespace] = []
    for name in names:
        try:
            found.append(await client.get(NAMESPACES, name))
        except NotFound as error:
            raise InvalidInput("there is no such namespace", subject=name) from error
    return [each.metadata for each in found]


async def _exclude(client: Client, namespace: str, excluded: list[tuple[str, str]], *, dry_run: bool) -> None:
    for kind, name in excluded:
        (resource,) = sized([kind])
        patch = MergePatch({"metadata": {"labels": {LABEL: DISABLED}}})
        try:
            await client.patch(resource, name, patch, namespace=namespace, dry_run=dry_run)
        except NotFound as error:
            raise InvalidInput(f"there is no {resource.kind} {namespace}/{name}", field="--exclude") from error


def _as_excluded(target: Any, excluded: list[tuple[str, str]]) -> Any:
    """Return a workload with the label that a dry run did not write."""
    meta = target.metadata
    if (target.kind.lower(), meta.name) not in {(kind.lower(), name) for kind, name in excluded}:
        return target
    return replace(target, metadata=msgspec.structs.replace(meta, labels={**(meta.labels or {}), LABEL: DISABLED}))


async def _print(client: Client, namespace: str, made: VpaPlan, *, dry_run: bool) -> None:
    if dry_run:
        would = [("create", body["metadata"]["name"]) for body in made.create]
        would += [("change", name) for name, _ in made.change]
        would += [("delete", vpa.metadata.name) for vpa in made.delete]
        for action, name in would:
            click.echo(f"would {action} VPA {namespace}/{name}")
    else:
        for done in await write_plan(client, namespace, made):
            click.echo(f"{_DONE[done.action]} VPA {namespace}/{done.name}")
    for kept in made.skipped:
        click.echo(f"{namespace} {kept.target}: {kept.reason}")


def _policy(file: Path) -> str:
    try:
        return encode(msgspec.yaml.decode(file.read_bytes(), type=dict[str, Any])).decode()
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{file}: {error}", field="--resource-policy") from error


def _workload(text: str) -> tuple[str, str]:
    kind, slash, name = text.partition("/")
    if not slash or not kind or not name:
        raise InvalidInput(f"{text!r} is not KIND/NAME", field="--exclude")
    sized([kind])
    return kind, name
