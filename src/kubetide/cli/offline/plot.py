"""`kubetide plot`: what the containers of a workload used, beside what they request and should request."""

import asyncio
import sys
from html import escape
from typing import Any

import click

from kubetide.charts import to_svg, to_text
from kubetide.cli.main import Invocation
from kubetide.cli.offline.record import DURATION
from kubetide.cli.offline.usage_sources import show_progress, sources_of, usage_options
from kubetide.cli.places import client_of
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput
from kubetide.recommend.cluster import Selection
from kubetide.recommend.core.plots import charts, replicas
from kubetide.recommend.core.rows import rows
from kubetide.recommend.core.workloads import Usage, key_of
from kubetide.recommend.gathering import Gathered, gather


@click.command("plot", short_help="Usage of a workload beside its requests.")
@click.argument("workload", metavar="[NAMESPACE/]NAME")
@click.option("--kind", default="", help="Which kind, where several workloads have the name.")
@click.option("--container", default="", help="Only this container.")
@click.option("--since", "history", type=DURATION, default="7d", show_default=True, help="How far to look back.")
@usage_options
@click.option("-o", "--output", type=click.Choice(["term", "svg", "html"]), default="term", show_default=True)
@click.pass_obj
def command(invocation: Invocation, /, workload: str, kind: str, container: str, output: str, **given: Any) -> None:
    """Plot usage (p50 to p95 over its pods), request, limit, recommendation, OOM kills, and the number of pods."""
    namespace, _, name = workload.rpartition("/")
    chosen = namespace or invocation.namespace or "default"
    selection = Selection(namespace=chosen, kinds=frozenset({kind.lower()} if kind else ()), name=name)
    found = asyncio.run(_gather(invocation, selection, given))
    workloads = found.state.workloads
    if not workloads:
        raise InvalidInput("there is no such workload", subject=f"{chosen}/{name}")
    if len(workloads) > 1:
        kinds = ", ".join(sorted(each.kind for each in workloads))
        raise InvalidInput(f"several workloads have this name ({kinds}): give --kind", subject=f"{chosen}/{name}")
    made = rows(workloads, found.usage, bounds={"": found.state.bounds}, why_missing=found.missing)
    drawn = []
    for row in sorted(made, key=lambda each: each.position):
        usage = found.usage.get(key_of(workloads[0], row.container))
        if container and row.container != container:
            continue
        if isinstance(usage, Usage):
            drawn += [*charts(usage, row, targets=workloads[0].utilization), replicas(usage, row)]
        else:
            click.echo(f"kubetide: {row.workload} {row.container}: {row.reason}", err=True)
    if not drawn:
        raise InvalidInput("there is nothing to plot", subject=f"{chosen}/{name}")
    match output:
        case "svg":
            click.echo(_stacked([to_svg(chart) for chart in drawn]))
        case "html":
            title = escape(f"{chosen}/{name}")
            body = "".join(f"<p>{to_svg(chart)}</p>" for chart in drawn)
            click.echo(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{body}</html>')
        case _:
            for chart in drawn:
                click.echo(to_text(chart, width=80, height=14, colour=sys.stdout.isatty()))


def _stacked(images: list[str], height: int = 240) -> str:
    """Return images as one, below each other."""
    inner = "".join(image.replace("<svg ", f'<svg y="{number * height}" ', 1) for number, image in enumerate(images))
    whole = len(images) * height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{whole}" viewBox="0 0 640 {whole}">{inner}</svg>'
    )


async def _gather(invocation: Invocation, selection: Selection, given: dict[str, Any]) -> Gathered:
    clock, client = SystemClock(), client_of(invocation)
    try:
        tell = show_progress if sys.stderr.isatty() else None
        return await gather(client, clock, selection, sources_of(given, clock), progress=tell)
    finally:
        await client.close()
