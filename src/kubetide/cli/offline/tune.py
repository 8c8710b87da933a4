"""`kubetide tune`: numbers of the recommender or of HPAs, searched on a cluster's past, judged on days held out."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubetide.cli.offline.record import DURATION
from kubetide.errors import InvalidInput

if TYPE_CHECKING:
    from kubetide.replay.tune import TunedNumbers


@click.command("tune", short_help="Search the numbers of a policy on a recording.")
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--objective",
    type=click.Choice(["memory", "cpu", "both", "replicas"]),
    default="both",
    show_default=True,
    help="What counts: sizes of containers, or replica counts of HPAs on CPU.",
)
@click.option(
    "--estimator",
    type=click.Choice(["vpa", "krr", "peak"]),
    default="vpa",
    show_default=True,
    help="Whose numbers are searched, where sizes count.",
)
@click.option("--budget", type=click.IntRange(2), default=200, show_default=True, help="Candidates that are tried.")
@click.option(
    "--per",
    "classes",
    type=click.Choice(["all", "namespace", "kind", "shape"]),
    default="all",
    show_default=True,
    help="Workloads that get numbers of their own; shapes are steady, bursty, growing.",
)
@click.option("--held-out", type=DURATION, help="Days at the end that decide. Default: a third of the recording.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed tries other candidates.")
@click.option("--workers", type=click.IntRange(1), help="Processes. Default: as many as there are CPUs.")
@click.option("--scheduler", default="", metavar="ADDRESS", help="Work on a Dask cluster, such as tcp://10.0.0.1:8786.")
@click.option("--resume", is_flag=True, help="Go on with a search that Ctrl-C ended: what was tried has been kept.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write a policy file per class here."
)
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write an HTML report."
)
def command(
    recording: Path,
    objective: Any,
    estimator: Any,
    budget: int,
    classes: Any,
    held_out: timedelta | None,
    seed: int,
    workers: int | None,
    scheduler: str,
    resume: bool,
    out: Path | None,
    report: Path | None,
) -> None:
    """Search the numbers of the recommender, or of HPAs; print the front, and what puts the best in force.

    The days held out decide, beside the defaults: where no candidate is better there, the defaults stay.
    """
    from kubetide.charts.page import page
    from kubetide.cli.offline.reports import progress_bar, show_table, write_report
    from kubetide.replay.parts import journal_file
    from kubetide.replay.runs import Options
    from kubetide.replay.tune import tune
    from kubetide.replay.tuned import in_force, policy_file, sections, table

    if held_out is not None and held_out % timedelta(days=1):
        raise InvalidInput("must be whole days", field="--held-out")
    options = Options(workers=workers or len(os.sched_getaffinity(0)), scheduler=scheduler, resume=resume)
    with progress_bar("tuning") as progress:
        try:
            found = tune(
                recording,
                objective=objective,
                estimator=estimator,
                budget=budget,
                classes=classes,
                held_out_days=None if held_out is None else held_out.days,
                options=options,
                seed=seed,
                progress=progress,
            )
        except KeyboardInterrupt:
            if (kept := journal_file(recording)).exists():
                click.echo(f"\nwhat is tried is kept in {kept}; go on with --resume", err=True)
            raise
    for each in found:
        show_table(f"{each.workload_class}: front of {recording.name}", *table(each))
        for line in in_force(each):
            click.echo(line)
    if out is not None:
        _write(out, found, policy_file)
    if report is not None:
        write_report(report, page(f"Tuned on {recording.name}", sections(found)))


def _write(folder: Path, found: "Sequence[TunedNumbers]", text: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in found:
            (folder / f"{each.workload_class}.yaml").write_text(text(each), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(folder), field="--out") from error
