"""`kubetide simulate`: what policies would do in a closed loop, before anybody meets them in a cluster."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from kubetide.api.objects.meta import ObjectKey
from kubetide.cli.main import Invocation
from kubetide.cli.offline.prometheus_options import prometheus_at, prometheus_options
from kubetide.cli.offline.record import AUTO, DURATION
from kubetide.errors import InvalidInput

if TYPE_CHECKING:
    from kubetide.embedded.sim.load.scenario import LoadSpec, Scenario
    from kubetide.simulate.variants import Variant

LIVE = "hpa"
_STEP = 60


@click.command("simulate", short_help="Compare policies in a closed loop, on a simulated cluster.")
@click.argument("source", metavar="SCENARIO|RECORDING|hpa")
@click.argument("name", required=False, metavar="[NAMESPACE/NAME]")
@click.option(
    "--policies",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Which policies are compared. Default: everything as it is, and without any controller.",
)
@click.option(
    "--vs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="MANIFEST",
    help="Compare with these objects instead of those of the scenario; may be given several times.",
)
@click.option("--slo", type=DURATION, default="1s", show_default=True, help="A request that takes this long missed it.")
@click.option("--duration", type=DURATION, help="How much time is simulated. Default: the scenario's; 30m for an HPA.")
@click.option("--seed", type=int, help="Another seed makes another run. Default: the scenario's.")
@click.option("--load", metavar="CURVE:FIELD=VALUE,…", help="Load of an HPA: spike:base=60,peak=600,at=5m,for=8m.")
@click.option("--load-from", metavar="PROMQL", help="Load of an HPA as it was: a query of requests per second.")
@click.option("--prometheus", default=AUTO, show_default=True, metavar="URL|auto", help="Who answers --load-from.")
@prometheus_options
@click.option("--since", type=DURATION, default="1d", show_default=True, help="How far back --load-from goes.")
@click.option(
    "--cpu-per-request", default="10m", show_default=True, metavar="QUANTITY", help="What a request costs an HPA's pod."
)
@click.option(
    "--price-cpu", type=click.FloatRange(0.0, 1e9), default=0.0, metavar="MONEY", help="Price of a core for an hour."
)
@click.option(
    "--price-memory", type=click.FloatRange(0.0, 1e9), default=0.0, metavar="MONEY", help="Price of a GiB for an hour."
)
@click.option("--workers", type=click.IntRange(1), help="Processes. Default: as many as there are CPUs.")
@click.option("--scheduler", default="", metavar="ADDRESS", help="Work on a Dask cluster, such as tcp://10.0.0.1:8786.")
@click.option("--resume", is_flag=True, help="Go on with a comparison that Ctrl-C ended: finished runs have been kept.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--series",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the series of every workload: Parquet where FILE ends so, CSV otherwise.",
)
@click.option("--charts", is_flag=True, help="Under the table: the charts of the report, as text.")
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write an HTML report."
)
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    source: str,
    name: str | None,
    policies: Path | None,
    vs: tuple[Path, ...],
    slo: timedelta,
    duration: timedelta | None,
    seed: int | None,
    load: str | None,
    load_from: str | None,
    prometheus: str,
    since: timedelta,
    cpu_per_request: str,
    price_cpu: float,
    price_memory: float,
    workers: int | None,
    scheduler: str,
    resume: bool,
    output: str,
    series: Path | None,
    charts: bool,
    report: Path | None,
    **given: Any,
) -> None:
    """Run every controller on a simulated cluster, once per policy, and compare.

    SCENARIO is a file, or the name of one that comes with kubetide; RECORDING a .tide file. `hpa NAMESPACE/NAME` takes
    the autoscaler, its target and its VPA from the cluster, and needs --load or --load-from. Nothing is written there.
    """
    from kubetide.charts.page import page
    from kubetide.cli.offline.reports import progress_bar, show_charts, show_table, write_report
    from kubetide.replay.core.figures import Prices
    from kubetide.simulate import report as reports
    from kubetide.simulate.runs import Options, run

    invocation.configure_logging()
    if source == LIVE and name is None and not Path(source).exists():
        raise click.UsageError("hpa needs NAMESPACE/NAME.")
    live = source == LIVE and name is not None
    if not live and (name is not None or load or load_from):
        raise click.UsageError("NAMESPACE/NAME, --load and --load-from go with hpa.")
    if live and (load is None) == (load_from is None):
        raise click.UsageError("hpa needs --load or --load-from.")
    if charts and output != "table":
        raise click.UsageError("--charts goes with the table.")
    if live:
        assert name is not None
        wanted = _Load(text=load, query=load_from, prometheus=prometheus, since=since, given=given)
        scenario = asyncio.run(_live(invocation, name, wanted, cpu_per_request))
    else:
        scenario = _scenario(source)
    options = Options(
        duration=duration,
        seed=seed,
        slo=slo,
        workers=workers or len(os.sched_getaffinity(0)),
        scheduler=scheduler,
        keep=_kept_runs(source, name, scenario.name),
        resume=resume,
        prices=Prices(core=price_cpu, gib=price_memory),
    )
    with progress_bar("simulating") as progress:
        try:
            outcomes = run(scenario, _variants(policies, vs), options, progress=progress)
        except KeyboardInterrupt:
            if options.keep is not None and options.keep.exists():
                click.echo(f"\nfinished runs are kept in {options.keep}; go on with --resume", err=True)
            raise
    if output == "json":
        click.echo(reports.as_json(outcomes))
    elif output == "csv":
        click.echo(reports.series_csv(outcomes), nl=False)
    else:
        show_table(f"{scenario.name}: closed loop, SLO {slo.total_seconds():g} s", *reports.table(outcomes))
    if series is not None:
        reports.write_series(series, outcomes)
    if charts or report is not None:
        parts = reports.sections(outcomes, slo.total_seconds())
        if charts:
            show_charts(parts)
        if report is not None:
            write_report(report, page(f"Simulation of {scenario.name}", parts))


def _kept_runs(source: str, name: str | None, scenario: str) -> Path:
    """Return where finished runs are kept: beside the file that is simulated, here where it is none."""
    path = Path(source)
    if name is None and path.exists():
        return path.with_name(path.name + ".runs")
    return Path(f"{(name or scenario).replace('/', '-')}.runs")


class _Load:
    """The load of an HPA: a curve, or what Prometheus knows."""

    def __init__(
        self, *, text: str | None, query: str | None, prometheus: str, since: timedelta, given: Mapping[str, Any]
    ) -> None:
        self.text, self.query, self.prometheus, self.since, self.given = text, query, prometheus, since, given


def _scenario(source: str) -> "Scenario":
    from kubetide.embedded.sim import scenarios
    from kubetide.embedded.sim.load.scenario_file import load_scenario

    path = Path(source)
    if path.suffix == ".tide":
        from kubetide.recording.reader import Recording
        from kubetide.simulate.recorded import scenario_of

        return scenario_of(Recording(path))
    return scenarios.load(source) if source in scenarios.names() and not path.exists() else load_scenario(path)


async def _live(invocation: Invocation, name: str, load: _Load, cpu_per_request: str) -> "Scenario":
    from kubetide.cli.places import client_of
    from kubetide.simulate.live import scenario_of_hpa

    namespace, slash, rest = name.partition("/")
    key = ObjectKey(namespace, rest) if slash else ObjectKey(invocation.namespace or "default", name)
    client = client_of(invocation)
    try:
        spec, length = await _load_of(client, load)
        return await scenario_of_hpa(client, key, spec, cpu_per_request=cpu_per_request, duration=length)
    finally:
        await client.close()


async def _load_of(client: Any, load: _Load) -> "tuple[LoadSpec, str]":
    """Return the load, and how long it is worth looking at."""
    from kubetide.simulate.live import load_from, parse_load

    if load.text is not None:
        return parse_load(load.text), "30m"
    from kubetide.clock import SystemClock
    from kubetide.recording.prometheus_proxy import find_prometheus
    from kubetide.vpa.recommender.prometheus import Prometheus

    clock = SystemClock()
    source: Prometheus = (
        await find_prometheus(client) if load.prometheus == AUTO else prometheus_at(load.prometheus, load.given, clock)
    )
    seconds = int(load.since.total_seconds()) // _STEP * _STEP
    end = int(clock.now().timestamp()) // _STEP * _STEP
    assert load.query is not None
    return await load_from(source, load.query, end=end, seconds=seconds, step=_STEP), f"{seconds}s"


def _variants(policies: Path | None, manifests: Sequence[Path]) -> "list[Variant]":
    from kubetide.simulate.controllers import ALL
    from kubetide.simulate.variants import AS_IS, NOBODY, Variant, check_object, read_variants

    found = read_variants(next(iter(_documents(policies)), None), policies.name, ALL) if policies is not None else []
    if not found:
        found = [AS_IS] if manifests else [AS_IS, NOBODY]
    for path in manifests:
        objects = [each for each in _documents(path) if each is not None]
        for each in objects:
            check_object(each, path.name, "--vs")
        if not objects:
            raise InvalidInput("holds no object", subject=path.name, field="--vs")
        found.append(Variant(name=path.stem, objects=objects))
    return found


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", subject=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"is not YAML: {' '.join(str(error).split())}", subject=str(path)) from error
