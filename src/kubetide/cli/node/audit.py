"""`kubetide node audit`: what the agent wrote to which cgroup and whom it evicted, when, and why; newest first.

Asks a running agent, or reads the files of one that is gone.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kubetide.cli.asking import get_json
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError

PAGE = 256


@click.command("audit", short_help="What the agent of a node did, newest first.")
@click.option("--address", default="127.0.0.1:9316", show_default=True, help="Where the agent answers.")
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
def command(
    address: str,
    directory: Path | None,
    reason: str | None,
    pod: str | None,
    limit: int,
    token: str | None,
    output: str,
) -> None:
    """Show what the agent of a node did, newest first."""
    events = read_files(directory) if directory is not None else asyncio.run(_ask(address, limit, token))
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


async def _ask(address: str, limit: int, bearer: str | None) -> list[dict[str, Any]]:
    """Return the events of a running agent, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        query = {"size": str(PAGE), **({"pageToken": token} if token else {})}
        page = await get_json(address, "/events", token=bearer or "", query=query, seconds=30)
        if page is None:
            raise KubetideError(
                f"{address} keeps no audit log: see --audit-log-dir and the gate AuditEventsHTTPHandler"
            )
        found += page.get("Events") or []
        token = page.get("NextPageToken") or ""
        if not token or (limit and len(found) >= limit * 20):
            return found


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
