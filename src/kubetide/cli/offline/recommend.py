"""`kubetide recommend`: what workloads should request, what it saves, and what speaks for it. Reads only."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kubetide.api.values.codec import encode
from kubetide.api.values.quantity import parse_quantity
from kubetide.api.values.selectors import parse_selector
from kubetide.cli.main import Invocation
from kubetide.cli.offline.prometheus_options import pair
from kubetide.cli.offline.record import DURATION
from kubetide.cli.offline.usage_sources import Progress, sources_of, usage_options
from kubetide.cli.places import client_of
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput, KubetideError, QuantityError
from kubetide.kube.client.client import Client
from kubetide.kube.client.kubeconfig import context_names
from kubetide.recommend.cluster import Selection, kind_named
from kubetide.recommend.core.changes import Difference, compare
from kubetide.recommend.core.estimators import estimator
from kubetide.recommend.core.patches import LAYOUTS, vpas
from kubetide.recommend.core.rows import Row, by_namespace, rows
from kubetide.recommend.core.sizing import LimitPolicy, Options, short
from kubetide.recommend.core.workloads import ContainerKey, Sizes, Usage
from kubetide.recommend.gathering import Gathered, gather
from kubetide.recommend.installed import installed_estimators
from kubetide.recommend.manifest_edits import edit_repository, find_in_repository
from kubetide.recommend.opencost import averaged
from kubetide.recommend.outputs.html import to_html
from kubetide.recommend.outputs.sarif import sarif
from kubetide.recommend.outputs.table import WIDTH, table
from kubetide.recommend.outputs.texts import Report, from_json, to_csv, to_json, to_markdown, to_yaml
from kubetide.recommend.patch_files import dump, write_layout
from kubetide.recommend.price_list import read_prices
from kubetide.vpa.core.policy import CPU, MEMORY

FORMS = ("table", "json", "yaml", "csv", "markdown", "html", "sarif", "patches", "vpa")


@click.command("recommend", short_help="What workloads should request, and what it saves.")
@click.option("--all-contexts", is_flag=True, help="Every cluster of the kubeconfig; or --context a,b.")
@click.option("-l", "--selector", default="", help="Only workloads with these labels.")
@click.option("--kind", "kinds", multiple=True, help="Only workloads of this kind, as kubectl takes it; several times.")
@click.option("--history", type=DURATION, default="14d", show_default=True, help="How far to look back.")
@usage_options
@click.option(
    "--estimator", default="vpa", show_default=True, help="vpa, adaptive, krr, percentile=95, or an installed one."
)
@click.option("--headroom", default="0%", show_default=True, help="On top of what the estimator says.")
@click.option("--min", "floor", default="", metavar="cpu=…,memory=…", help="Never recommend less.")
@click.option("--max", "ceiling", default="", metavar="cpu=…,memory=…", help="Never recommend more.")
@click.option(
    "--limits",
    type=click.Choice([each.value for each in LimitPolicy]),
    help="What becomes of limits. Default: keep, raised only where they would be below the request.",
)
@click.option("--keep-ratio", is_flag=True, help="The same as --limits ratio.")
@click.option("--keep-qos", is_flag=True, help="Keep the QoS classes Guaranteed and BestEffort.")
@click.option(
    "--price",
    default="",
    metavar="cpu=…,gib=…|FILE|none",
    help="Money per core-hour and GiB-hour. Default: OpenCost, if it is in the cluster.",
)
@click.option("--details", is_flag=True, help="Show the backtest of every row.")
@click.option("--fail-over", metavar="PERCENT", help="Exit with 1 where requests differ by more, for CI.")
@click.option(
    "--diff",
    "older",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="OLD.json",
    help="Only what changed since.",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for -o patches.")
@click.option("--layout", type=click.Choice(LAYOUTS), help="For -o patches. Default: kubectl.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Change requests in the manifests below this folder, and print the difference; with -o sarif only find them.",
)
@click.option("-o", "--output", type=click.Choice(FORMS), default="table", show_default=True)
@click.pass_obj
def command(
    invocation: Invocation, /, output: str, fail_over: str | None, details: bool, older: Path | None, **given: Any
) -> int:
    """Recommend requests for all workloads of a cluster, or those of -n, with evidence. The cluster is only read.

    Usage comes from Prometheus, else from VPA checkpoints, else from the metrics API (--watch-for).

    -n NAMESPACE, --context and --kubeconfig choose as with kubectl.
    """
    _check(output, older, given)
    options = _options(given)
    selection = Selection(
        namespace="" if invocation.all_namespaces else invocation.namespace or "",
        labels=given["selector"],
        kinds=frozenset(map(kind_named, given["kinds"])),
    )
    last = None if older is None else from_json(older.read_bytes(), str(older))
    parse_selector(selection.labels)
    sources_of(given, SystemClock())  # mistakes are said before a cluster is asked
    threshold = None if fail_over is None else percent(fail_over, "--fail-over")
    price_list = read_prices("" if given["price"] == "none" else given["price"])
    clock = SystemClock()
    contexts = _contexts(invocation, given["all_contexts"])
    if len(contexts) > 1 and (given["repo"] is not None or output == "vpa"):
        raise click.UsageError("--repo and -o vpa are for one cluster: choose it with --context.")
    found, unread = asyncio.run(_gather(invocation, contexts, selection, given, clock))
    problems = (*unread, *(problem for each in found.values() for problem in each.problems(len(contexts) > 1)))
    nodes = {cluster: each.state.nodes for cluster, each in found.items()}
    made = rows(
        [workload for each in found.values() for workload in each.state.workloads],
        {key: usage for each in found.values() for key, usage in each.usage.items()},
        options,
        bounds={cluster: each.state.bounds for cluster, each in found.items()},
        prices=averaged({cluster: each.prices for cluster, each in found.items()})
        if price_list is None
        else price_list.prices(nodes),
        why_missing={key: reason for each in found.values() for key, reason in each.missing.items()},
    )
    report = Report(
        at=clock.now().isoformat(timespec="seconds"),
        problems=problems,
        namespaces=tuple(by_namespace(made)),
        rows=tuple(made),
    )
    for problem in problems:
        click.echo(f"kubetide: {problem}", err=True)
    if given["repo"] is not None:
        _look_into(given["repo"], report, output)
    elif output == "patches":
        no_limits = options.limits is LimitPolicy.NONE
        _write_patches(given["out"], given["layout"] or LAYOUTS[0], report, no_limits=no_limits)
    elif last is not None:
        _print_changes(compare(last.rows, report.rows), output)
    else:
        usage = {key: each for one in found.values() for key, each in one.usage.items() if isinstance(each, Usage)}
        _print(report, usage, output, details=details)
    return 1 if unread or (threshold is not None and any(_differs(row, threshold) for row in made)) else 0


def _check(output: str, older: Path | None, given: Mapping[str, Any]) -> None:
    """Refuse options that would be passed over."""
    if output == "patches" and given["out"] is None:
        raise click.UsageError("-o patches needs --out DIR.")
    if output != "patches" and (given["out"] is not None or given["layout"] is not None):
        raise click.UsageError("--out and --layout go with -o patches; other forms are written to standard output.")
    if older is not None and output not in ("table", "json"):
        raise click.UsageError("--diff goes with -o table and -o json.")
    if given["repo"] is not None and (output not in ("table", "sarif") or older is not None):
        raise click.UsageError("--repo prints the difference of manifests: it goes with -o sarif, and without --diff.")
    if given["keep_ratio"] and given["limits"] not in (None, LimitPolicy.RATIO):
        raise click.UsageError("--keep-ratio is --limits ratio: give one of them.")


def _contexts(invocation: Invocation, every: bool) -> list[str]:
    """Return the contexts to look at; an empty name is the current one."""
    if every:
        if not (names := context_names(path=invocation.kubeconfig)):
            raise InvalidInput("the kubeconfig has no context", field="--all-contexts")
        return names
    return [name for name in (invocation.context or "").split(",") if name] or [""]


async def _gather(
    invocation: Invocation, contexts: list[str], selection: Selection, given: Mapping[str, Any], clock: SystemClock
) -> tuple[dict[str, Gathered], list[str]]:
    """Read one cluster after the other; rows name their cluster where there are several.

    One of several that cannot be read is named and leaves the others their rows.
    """
    found: dict[str, Gathered] = {}
    unread: list[str] = []
    tell = Progress(clock) if sys.stderr.isatty() else None
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}  # all before the first is asked: a misspelt context is said at once
        for context in contexts:
            clients[context] = client_of(replace(invocation, context=context or None))
            stack.push_async_callback(clients[context].close)
        for context, client in clients.items():
            cluster = context if len(contexts) > 1 else ""
            sources = replace(sources_of(given, clock), opencost=not given["price"])
            try:
                found[cluster] = await gather(client, clock, selection, sources, cluster=cluster, progress=tell)
            except KubetideError as error:
                if not cluster:
                    raise
                unread.append(f"{context}: no rows of this cluster: {' '.join(str(error).split())}")
    if not found:
        raise KubetideError(f"no cluster can be read: {unread[0]}")
    return found, unread


def _print(report: Report, usage: Mapping[ContainerKey, Usage], output: str, *, details: bool) -> None:
    match output:
        case "json":
            click.echo(to_json(report))
        case "yaml":
            click.echo(to_yaml(report), nl=False)
        case "csv":
            click.echo(to_csv(report.rows), nl=False)
        case "markdown":
            click.echo(to_markdown(report.rows), nl=False)
        case "html":
            click.echo(to_html(report, usage), nl=False)
        case "vpa":
            click.echo(dump(vpas(report.rows)), nl=False)
        case "sarif":
            click.echo(encode(sarif(report.rows)))
        case _:
            console = Console(highlight=False, soft_wrap=True)
            width = console.width if console.is_terminal else WIDTH
            for line in table(report.rows, width=width, details=details):
                console.print(line)


def _look_into(folder: Path, report: Report, output: str) -> None:
    """Change the manifests below a folder, or only name them in a log of findings."""
    if output == "sarif":
        places, problems = find_in_repository(folder, report.rows)
        click.echo(encode(sarif(report.rows, places)))
    else:
        difference, problems = edit_repository(folder, report.rows)
        click.echo(difference, nl=False)
    for problem in problems:
        click.echo(f"kubetide: {problem}", err=True)


def _write_patches(folder: Path, layout: str, report: Report, *, no_limits: bool) -> None:
    written, left_out = write_layout(folder, layout, report.rows, no_limits=no_limits)
    for path in written:
        click.echo(path)
    if not written:
        click.echo("kubetide: nothing to write: no recommendation differs from what is requested", err=True)
    for problem in left_out:
        click.echo(f"kubetide: {problem}", err=True)


def _print_changes(changes: list[Difference], output: str) -> None:
    if output == "json":
        click.echo(encode(changes))
        return
    for each in changes:
        click.echo(f"{each.what:4} {each.container}: {_sizes_text(each.before)} → {_sizes_text(each.after)}")
    click.echo(f"{len(changes)} containers changed since the last report")


def _sizes_text(row: Row | None) -> str:
    if row is None or row.recommended is None:
        return "nothing"
    new = row.recommended
    return f"{row.risk} {short(CPU, new.cpu_request_millis)} {short(MEMORY, new.memory_request_bytes)}"


def _options(given: Mapping[str, Any]) -> Options:
    options = Options(
        estimator=given["estimator"],
        headroom=percent(given["headroom"], "--headroom"),
        floor=_sizes(given["floor"], "--min"),
        ceiling=_sizes(given["ceiling"], "--max"),
        limits=LimitPolicy.RATIO if given["keep_ratio"] else LimitPolicy(given["limits"] or LimitPolicy.KEEP),
        keep_qos=given["keep_qos"],
        estimators=installed_estimators(),
    )
    estimator(options.estimator, options.estimators)  # an unknown name is said before anything is read
    for name in ("cpu_millis", "memory_bytes"):
        least, most = getattr(options.floor, name), getattr(options.ceiling, name)
        if least is not None and most is not None and least > most:
            raise InvalidInput(f"{name.partition('_')[0]} is above that of --max", field="--min")
    return options


def percent(text: str, field: str) -> float:
    """Return a share that is written as a percentage."""
    with suppress(ValueError):
        value = float(text.removesuffix("%"))
        if 0 <= value < 1e6:
            return value / 100
    raise InvalidInput(f"{text!r} is not a percentage such as 30%", field=field)


def _sizes(text: str, field: str) -> Sizes:
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, amount = pair(part, field)
        if name not in ("cpu", "memory"):
            raise InvalidInput(f"{name!r} is neither cpu nor memory", field=field)
        try:
            quantity = parse_quantity(amount)
        except QuantityError as error:
            raise InvalidInput(str(error), field=field) from error
        found[name] = quantity.milli if name == "cpu" else quantity.value
    return Sizes(found.get("cpu"), found.get("memory"))


def _differs(row: Row, threshold: float) -> bool:
    """Return whether a request is further from its recommendation than a share of it."""
    new = row.recommended
    if new is None:
        return False
    pairs = (
        (row.current.cpu_request_millis, new.cpu_request_millis),
        (row.current.memory_request_bytes, new.memory_request_bytes),
    )
    return any(wanted and abs((had or 0) - wanted) > threshold * wanted for had, wanted in pairs)
