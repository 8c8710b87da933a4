"""`kubetide plot`: what the containers of a workload used, beside what they request and should request."""

import asyncio
import shutil
import sys
from typing import Any

import click

from kubetide.charts import to_svg, to_text
from kubetide.charts.page import Section, page
from kubetide.cli.main import Invocation
from kubetide.cli.offline.record import DURATION
from kubetide.cli.offline.usage_sources import Progress, sources_of, usage_options
from kubetide.cli.places import client_of
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput
from kubetide.recommend.cluster import Selection, kind_named
from kubetide.recommend.core.plots import VpaMarks, charts, replicas
from kubetide.recommend.core.rows import rows
from kubetide.recommend.core.workloads import Usage, key_of
from kubetide.recommend.gathering import Gathered, gather
from kubetide.recommend.outputs.texts import why
from kubetide.recommend.vpa_marks import read_marks

_WIDEST = 120
_FONTS = "Liberation Sans, Arial, Helvetica, Noto Sans, DejaVu Sans"


@click.command("plot", short_help="Usage of a workload beside its requests.")
@click.argument("workload", metavar="[NAMESPACE/]NAME")
@click.option("--kind", default="", help="Which kind, where several workloads have the name.")
@click.option("--container", default="", help="Only this container.")
@click.option("--since", "history", type=DURATION, default="7d", show_default=True, help="How far to look back.")
@usage_options
@click.option("-o", "--output", type=click.Choice(["term", "svg", "png", "html"]), default="term", show_default=True)
@click.pass_obj
def command(invocation: Invocation, /, workload: str, kind: str, container: str, output: str, **given: Any) -> None:
    """Plot usage (p50 to p95 over its pods), request, limit, recommendation, OOM kills, and the number of pods."""
    if output == "png" and sys.stdout.isatty():
        raise click.UsageError("-o png is for a file: kubetide plot … -o png > plot.png")
    namespace, _, name = workload.rpartition("/")
    if "/" in namespace:
        raise InvalidInput("is not NAMESPACE/NAME: a container is chosen with --container", subject=workload)
    chosen = namespace or invocation.namespace or "default"
    selection = Selection(namespace=chosen, kinds=frozenset({kind_named(kind)} if kind else ()), name=name)
    found, marks = asyncio.run(_gather(invocation, selection, given))
    workloads = found.state.workloads
    if not workloads:
        raise InvalidInput("there is no such workload", subject=f"{chosen}/{name}")
    if len(workloads) > 1:
        kinds = ", ".join(sorted(each.kind for each in workloads))
        raise InvalidInput(f"several workloads have this name ({kinds}): give --kind", subject=f"{chosen}/{name}")
    known = [one.name for one in workloads[0].containers]
    if container and container not in known:
        raise InvalidInput(f"there is no container {container!r}; there are: {', '.join(known)}", field="--container")
    for problem in found.state.problems:
        click.echo(f"kubetide: {problem}", err=True)
    made = rows(workloads, found.usage, bounds={"": found.state.bounds}, why_missing=found.missing)
    sections: list[Section] = []
    for row in sorted(made, key=lambda each: each.position):
        usage = found.usage.get(key_of(workloads[0], row.container))
        if container and row.container != container:
            continue
        if isinstance(usage, Usage):
            vpa = marks.get(row.container, VpaMarks())
            targets = workloads[0].utilization_of(row.container)
            drawn = [*charts(usage, row, targets=targets, vpa=vpa), replicas(usage, row)]
            sections.append(Section(heading=row.container, text=[why(row)], charts=drawn))
        else:
            click.echo(f"kubetide: {row.workload} {row.container}: {row.reason}", err=True)
    if not sections:
        raise InvalidInput("there is nothing to plot", subject=f"{chosen}/{name}")
    images = [chart for section in sections for chart in section.charts]
    match output:
        case "svg":
            click.echo(_stacked([to_svg(chart) for chart in images]))
        case "png":
            click.echo(_png(_stacked([to_svg(chart) for chart in images])), nl=False)
        case "html":
            click.echo(page(f"{workloads[0].kind} {chosen}/{name}", sections), nl=False)
        case _:
            terminal = sys.stdout.isatty()
            width = min(shutil.get_terminal_size().columns, _WIDEST) if terminal else 80
            for chart in images:
                click.echo(to_text(chart, width=width, height=14, colour=terminal))


def _stacked(images: list[str], height: int = 240) -> str:
    """Return images as one, below each other."""
    inner = "".join(image.replace("<svg ", f'<svg y="{number * height}" ', 1) for number, image in enumerate(images))
    whole = len(images) * height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{whole}" viewBox="0 0 640 {whole}">{inner}</svg>'
    )


def _png(image: str) -> bytes:
    """Return an SVG image as PNG, on white and twice as large, with some common font or any other that is there."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise InvalidInput("needs resvg: pip install kubetide[png]", field="-o png") from error
    named = image.replace('font-family="system-ui, sans-serif"', f'font-family="{_FONTS}"')
    text = f'<text y="9" font-family="{_FONTS}">x</text>'
    probe = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{text}</svg>'
    if svg_to_bytes(svg_string=probe) == svg_to_bytes(svg_string=probe.replace(">x<", "> <")):
        raise InvalidInput("there is no font: install one, such as DejaVu Sans, or use -o svg", field="-o png")
    return bytes(svg_to_bytes(svg_string=named, background="#ffffff", zoom=2.0))


async def _gather(
    invocation: Invocation, selection: Selection, given: dict[str, Any]
) -> tuple[Gathered, dict[str, VpaMarks]]:
    clock, client = SystemClock(), client_of(invocation)
    try:
        tell = Progress(clock) if sys.stderr.isatty() else None
        found = await gather(client, clock, selection, sources_of(given, clock), progress=tell)
        workloads = found.state.workloads
        marks = await read_marks(client, workloads[0], found.state.problems) if len(workloads) == 1 else {}
        return found, marks
    finally:
        await client.close()
