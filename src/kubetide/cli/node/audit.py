"""`kubetide node audit`: what the agent wrote to which cgroup and whom it evicted, when, and why; newest first.

Asks a running agent, or reads the files of one that is gone.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from kubetide.cli.main import Invocation
from kubetide.cli.name_completion import complete_nodes
from kubetide.cli.node.status import no_agent
from kubetide.cli.places import Place, ask_at, ask_everywhere
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError

PAGE = 256


@click.command("audit", short_help="What the agent of a node did, newest first.")
@click.option("--address", help="Where the agent answers. Default: it is looked for, here and in the cluster.")
@click.option(
    "--node",
    "node_name",
    default="",
    shell_complete=complete_nodes,
    help="The agent of this node, where it is looked for in the cluster.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Read the audit files in this directory instead of asking an agent.",
)
@click.option("--reason", help="Only events with this reason, such as AdjustBEByNodeCPUUsage.")
@click.option("--pod", help="Only events about this pod: NAMESPACE/NAME or NAME.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Stop after so many events; 0 shows all."
)
@click.option("--token", envvar="KUBETIDE_PROCESS_EXPLAIN_TOKEN", help="Bearer token, for an agent that is not here.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_obj
def command(
    invocation: Invocation,
    address: str | None,
    node_name: str,
    directory: Path | None,
    reason: str | None,
    pod: str | None,
    limit: int,
    token: str | None,
    output: str,
) -> None:
    """Show what the agent of a node did, newest first."""
    asked = (address, node_name, limit, token or "")
    events = read_files(directory) if directory is not None else asyncio.run(_ask(invocation, *asked))
    shown = 0
    for event in events:
        if not matches(event, reason=reason, pod=pod):
            continue
        click.echo(as_json(event) if output == "json" else as_line(event))
        shown += 1
        if limit and shown >= limit:
            break
    if not shown:
        click.echo("no events", err=True)


def read_files(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of an audit directory."""
    from kubetide.node.executor.audit_log import Audit

    audit = Audit(directory, SystemClock())
    token = ""
    while True:
        events, token = audit.query(PAGE, token)
        yield from events
        if not token:
            return


async def _ask(
    invocation: Invocation, address: str | None, node: str, limit: int, bearer: str
) -> Iterable[dict[str, Any]]:
    """Return the events of a running agent, page by page."""
    place = Place(address) if address else await _find(invocation, node, bearer)
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        query = {"size": str(PAGE), **({"pageToken": token} if token else {})}
        page = await ask_at(invocation, place, f"/events?{urlencode(query)}", token=bearer)
        if page is None:
            raise KubetideError(f"{place} keeps no audit log: see --audit-log-dir and the gate AuditEventsHTTPHandler")
        found += page.get("Events") or []
        token = page.get("NextPageToken") or ""
        if not token or (limit and len(found) >= limit * 20):
            return found


async def _find(invocation: Invocation, node: str, bearer: str) -> Place:
    for place, found in await ask_everywhere(invocation, "/events?size=1", token=bearer, node=node):
        if isinstance(found, dict) and "Events" in found:
            return place
    raise no_agent(node)


def matches(event: dict[str, Any], *, reason: str | None, pod: str | None) -> bool:
    """Return whether an event passes the filters."""
    if reason and event.get("reason") != reason:
        return False
    if not pod:
        return True
    namespace, _, name = pod.rpartition("/")
    return event.get("name") == name and (not namespace or event.get("namespace") == namespace)


def as_line(event: dict[str, Any]) -> str:
    """Return one event for a person."""
    at = event.get("createdAt", "")
    with contextlib.suppress(ValueError):
        at = datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M:%S")
    parts = (event.get("namespace"), event.get("name"), event.get("container"))
    subject = "/".join(part for part in parts if part)
    return f"{at}  {event.get('reason', ''):<28} {subject or event.get('type', ''):<32} {event.get('message', '')}"


def as_json(event: dict[str, Any]) -> str:
    """Return one event for a machine."""
    from kubetide.api.values.codec import encode

    return encode(event).decode()
