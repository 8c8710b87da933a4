"""`kubetide replay`: what a policy would have decided and what it would have cost, fed with what happened."""

import os
import sys
from pathlib import Path

import click

from kubetide.errors import InvalidInput
from kubetide.replay.stdio import SESSIONS, make_session, serve


@click.command("replay", short_help="What a policy would have decided, fed with what happened.")
@click.argument("recording", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--stdio",
    "kind",
    type=click.Choice(sorted(SESSIONS)),
    help="Instead of a recording: speak the line protocol on standard input and output, for sizes or replica counts.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="Which policy decides: a name or a YAML file; several are compared.",
)
@click.option("--audit", is_flag=True, help="Make recorded decisions again and list those that come out otherwise.")
@click.option(
    "--every", metavar="DURATION", help="How often sizes are recommended, for all policies; 0s: every sample."
)
@click.option(
    "--interval", type=click.IntRange(1), metavar="SECONDS", help="Length of a sample. Default: the recording's."
)
@click.option(
    "--period",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Length of a container-period. Default: the recording's.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0),
    metavar="PERIODS",
    help="Periods before counting begins. Default: the recording's.",
)
@click.option(
    "--price-cpu", type=click.FloatRange(0.0, 1e9), default=0.0, metavar="MONEY", help="Price of a core for an hour."
)
@click.option(
    "--price-memory", type=click.FloatRange(0.0, 1e9), default=0.0, metavar="MONEY", help="Price of a GiB for an hour."
)
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes. Default: as many as there are CPUs.")
@click.option("--scheduler", default="", metavar="ADDRESS", help="Work on a Dask cluster, such as tcp://10.0.0.1:8786.")
@click.option("--resume", is_flag=True, help="Go on with a replay that Ctrl-C ended: what was done has been kept.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--charts", is_flag=True, help="Under the table: the charts of the report, as text.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write an HTML report: policies beside the clairvoyant, the worst workloads, replicas, money.",
)
def command(
    recording: Path | None,
    kind: str | None,
    policies: tuple[str, ...],
    audit: bool,
    every: str | None,
    interval: int | None,
    period: int | None,
    warmup: int | None,
    price_cpu: float,
    price_memory: float,
    workers: int | None,
    scheduler: str,
    resume: bool,
    output: str,
    charts: bool,
    report: Path | None,
) -> None:
    """Replay a recording under policies and compare what they reserve and what goes wrong.

    Policies: current, vpa, krr, peak, static, adaptive, adaptive-one, oracle (sizes), hpa:PERCENT, headroom,
    headroom-safe (replica counts), or a file.
    """
    if (recording is None) == (kind is None):
        raise click.UsageError("Give a RECORDING, or --stdio.")
    if kind is not None:
        if len(policies) != 1:
            raise click.UsageError("--stdio takes one --policy.")
        serve(make_session(kind, policies[0]), sys.stdin.buffer, sys.stdout.buffer)
        return
    assert recording is not None
    if audit:
        _audit(recording)
        return
    if not policies:
        raise click.UsageError("Give at least one --policy, or --audit.")
    from kubetide.charts.page import page
    from kubetide.cli.offline.reports import progress_bar, show_charts, show_table, write_report
    from kubetide.replay.core.figures import Prices
    from kubetide.replay.parts import parts_file
    from kubetide.replay.pictures import sections, with_clairvoyant
    from kubetide.replay.report import as_csv, as_json, silent, table, why_nothing
    from kubetide.replay.runs import Options, load_policy, run, with_cadence

    specs = [load_policy(name) if every is None else with_cadence(load_policy(name), every) for name in policies]
    if len({spec.name for spec in specs}) < len(specs):
        raise click.UsageError("Two policies have the same name.")
    if charts and output != "table":
        raise click.UsageError("--charts goes with the table.")
    if charts or report is not None:
        specs = with_clairvoyant(specs)
    options = Options(
        interval_seconds=interval,
        period_seconds=period,
        warmup_periods=warmup,
        workers=workers or len(os.sched_getaffinity(0)),
        scheduler=scheduler,
        resume=resume,
        prices=Prices(core=price_cpu, gib=price_memory),
    )
    with progress_bar("replaying") as progress:
        try:
            outcomes = run(recording, specs, options, progress=progress)
        except KeyboardInterrupt:
            if parts_file(recording).exists():
                click.echo(f"\nwhat is done is kept in {parts_file(recording)}; go on with --resume", err=True)
            raise
    if (reason := why_nothing(recording, outcomes, period)) is not None:
        raise InvalidInput(reason, subject=str(recording))
    for line in silent(recording, outcomes, period):
        click.echo(f"kubetide: {recording}: {line}", err=True)
    if output == "json":
        click.echo(as_json(outcomes))
    elif output == "csv":
        click.echo(as_csv(outcomes), nl=False)
    else:
        show_table(f"{recording.name}: open loop, 95 % intervals by workload", *table(outcomes))
    if not charts and report is None:
        return
    parts = sections(recording, specs, outcomes, options)
    if charts:
        show_charts(parts)
    if report is not None:
        write_report(report, page(f"Replay of {recording.name}", parts))


def _audit(path: Path) -> None:
    from kubetide.recording.reader import Recording
    from kubetide.replay.audit import audit_autoscaler, audit_recommender

    recording, different = Recording(path), False
    if not recording.manifest.rows.get("decisions"):
        raise InvalidInput("holds no decisions: record it with --live and --audit", subject=str(path), field="--audit")
    for name, compare in (("recommender", audit_recommender), ("autoscaler", audit_autoscaler)):
        found = compare(recording)
        click.echo(
            f"{name}: {found.made - len(found.differences)} of {found.made} decisions came out the same"
            f"{f', {found.left_out} could not be made again' if found.left_out else ''}"
        )
        for line in found.differences:
            click.echo(f"  {line}")
        different |= bool(found.differences)
    if different:
        click.echo("a controller knew what the recording does not hold, or saw it sooner: docs/reference/recording.md")
        click.get_current_context().exit(1)
