"""`kubetide record`: what happened in a cluster, into a file that can be replayed and shared."""

import asyncio
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from kubetide.api.objects.meta import ObjectKey
from kubetide.cli.asking import get_json
from kubetide.cli.main import Invocation
from kubetide.cli.offline.prometheus_options import prometheus_at, prometheus_options, prometheus_settings
from kubetide.cli.places import Place, ask_quietly, client_of, find_places
from kubetide.clock import SystemClock
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import period_of
from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.format import Manifest
from kubetide.recording.live import LiveRecorder
from kubetide.recording.objects_now import write_objects
from kubetide.recording.prometheus import PrometheusRecorder, Span
from kubetide.recording.prometheus_proxy import find_prometheus
from kubetide.recording.reader import Recording
from kubetide.recording.tables import import_csv, import_pack
from kubetide.recording.writer import Writer
from kubetide.vpa.recommender.prometheus import Prometheus
from kubetide.vpa.recommender.settings import RecommenderSettings

AUTO = "auto"


class _Duration(click.ParamType[timedelta]):
    """A duration such as 90s, 12h or 30d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        days, separator, rest = str(value).partition("d")
        try:
            found = (
                timedelta(days=int(days)) if separator and not rest and days.isdigit() else parse_duration(str(value))
            )
        except InvalidInput:
            self.fail(f"{value!r} is not a duration such as 90s, 12h or 30d.", param, ctx)
        if found <= timedelta(0):
            self.fail("must be above 0.", param, ctx)
        return found


DURATION = _Duration()


@click.command("record", short_help="Record what happens, or happened, in a cluster.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.tide")
@click.option(
    "--prometheus", metavar="URL|auto", help="From the past, as Prometheus knows it; auto finds it in the cluster."
)
@click.option("--since", type=DURATION, default="30d", show_default=True, help="How far back Prometheus is asked.")
@click.option("--live", type=DURATION, metavar="DURATION", help="From now on, for so long, from the cluster's APIs.")
@click.option("--from-csv", type=click.Path(path_type=Path, dir_okay=False), help="From a CSV file.")
@click.option(
    "--from-pack", type=click.Path(path_type=Path, file_okay=False), help="From a folder of traces; needs --dataset."
)
@click.option("--dataset", help="Which data set of the folder of traces.")
@click.option("-n", "--namespace", help="Only this namespace.")
@click.option("--interval", type=DURATION, help="Distance of samples. Default: 5m from Prometheus and CSV, 15s live.")
@click.option("--load-query", default="", metavar="PROMQL", help="Load of workloads: a query with a label `workload`.")
@click.option(
    "--load-metric",
    default="",
    metavar="NAME",
    help="Load of workloads, live: a custom metric of pods. With --load-query: what the load is called.",
)
@click.option("--audit", is_flag=True, help="Live: keep what kubetide decided, to compare a replay with it.")
@click.option("--explain-address", metavar="ADDRESS", help="Where the autoscaler serves /explain, for --audit.")
@click.option("--token", envvar="KUBETIDE_PROCESS_EXPLAIN_TOKEN", default="", help="Bearer token for /explain.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="ADDRESS",
    help="A node agent whose audit log is kept too, with --audit.",
)
@click.option("--anonymize", is_flag=True, help="Replace all names by pseudonyms.")
@click.option(
    "--key",
    envvar="KUBETIDE_RECORD_KEY",
    help="Key of the pseudonyms, to make recordings comparable. Default: a new one.",
)
@click.option("--allow-gaps", is_flag=True, help="Where Prometheus does not answer, record a gap instead of giving up.")
@click.option("--deadline", type=DURATION, default="5m", show_default=True, help="How long a question is asked again.")
@click.option(
    "--objects",
    is_flag=True,
    help="With the URL of a Prometheus: also the HPAs and VPAs of the cluster, as they are now.",
)
@prometheus_options
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    output: Path,
    prometheus: str | None,
    since: timedelta,
    live: timedelta | None,
    from_csv: Path | None,
    from_pack: Path | None,
    dataset: str | None,
    namespace: str | None,
    interval: timedelta | None,
    load_query: str,
    load_metric: str,
    audit: bool,
    explain_address: str | None,
    token: str,
    agents: tuple[str, ...],
    anonymize: bool,
    key: str | None,
    allow_gaps: bool,
    deadline: timedelta,
    objects: bool,
    **given: Any,
) -> None:
    """Write a recording from one source: --prometheus, --live, --from-csv or --from-pack.

    No Secret, no environment and no annotation but kubetide's own gets into a recording.
    """
    if sum(source is not None for source in (prometheus, live, from_csv, from_pack)) != 1:
        raise click.UsageError("Give one of --prometheus, --live, --from-csv and --from-pack.")
    used = {
        "--audit": (audit, live is not None, "--live"),
        "--agent": (agents, audit, "--audit"),
        "--explain-address": (explain_address, audit, "--audit"),
        "--load-query": (load_query, prometheus is not None, "--prometheus"),
        "--load-metric": (load_metric, live is not None or load_query, "--live or --load-query"),
        "--namespace": (namespace, live is not None or prometheus is not None, "--live or --prometheus"),
        "--allow-gaps": (allow_gaps, prometheus is not None, "--prometheus"),
        "--objects": (objects, prometheus is not None, "--prometheus"),
        "--key": (key, anonymize, "--anonymize"),
    }
    for option, (wanted, possible, other) in used.items():
        if wanted and not possible:
            raise click.UsageError(f"{option} goes with {other}.")
    if agents and anonymize:
        raise click.UsageError("Audit logs of node agents hold names in texts: --agent does not go with --anonymize.")
    namespace = namespace or invocation.namespace
    invocation.configure_logging()
    hidden = Pseudonyms((key or secrets.token_hex(32)).encode()) if anonymize else None
    with _cleaned_up_on_sigterm():
        if from_csv is not None:
            import_csv(from_csv, output, interval_seconds=_whole(interval or timedelta(minutes=5)), pseudonyms=hidden)
        elif from_pack is not None:
            if dataset is None:
                raise click.UsageError("--from-pack needs --dataset.")
            import_pack(from_pack, dataset, output, pseudonyms=hidden)
        elif live is not None:
            step = interval or timedelta(seconds=15)
            task = _record_live(
                invocation, output, live, step, namespace, load_metric, hidden, audit, explain_address, token, agents
            )
            asyncio.run(task)
        else:
            assert prometheus is not None
            step = interval or timedelta(minutes=5)
            past = _record_past(
                invocation,
                output,
                prometheus,
                since,
                step,
                namespace,
                (load_query, load_metric or "load"),
                hidden,
                allow_gaps,
                deadline,
                objects,
                given,
            )
            asyncio.run(past)
    _tell(output)


async def _record_past(
    invocation: Invocation,
    output: Path,
    address: str,
    since: timedelta,
    step: timedelta,
    namespace: str | None,
    load: tuple[str, str],
    hidden: Pseudonyms | None,
    allow_gaps: bool,
    deadline: timedelta,
    objects: bool,
    given: Mapping[str, Any],
) -> None:
    clock = SystemClock()
    seconds = _whole(step)
    if since < step:
        raise InvalidInput(f"is shorter than one interval of {seconds} s", field="--since")
    settings = msgspec.structs.replace(
        RecommenderSettings() if address == AUTO else prometheus_settings(address, given),
        history_resolution=f"{seconds}s",
        vpa_object_namespace=namespace or "",
        # cAdvisor's own names, whatever the job that scrapes it is called.
        prometheus_cadvisor_job_name="",
        container_namespace_label="namespace",
        container_pod_name_label="pod",
        container_name_label="container",
    )
    end = int(clock.now().timestamp()) // seconds * seconds
    span = Span(start=end - int(since.total_seconds()) // seconds * seconds + seconds, end=end, step=seconds)
    manifest = Manifest(
        source="prometheus",
        interval_seconds=seconds,
        period_seconds=period_of(since.total_seconds(), seconds),
        start=span.start,
        end=span.end,
    )
    client = client_of(invocation) if address == AUTO or objects else None
    try:
        if address == AUTO:
            assert client is not None
            source: Prometheus = await find_prometheus(client)
        else:
            source = prometheus_at(address, given, clock)
        with Writer(output, manifest, pseudonyms=hidden) as writer:
            recorder = PrometheusRecorder(
                prometheus=source,
                settings=settings,
                writer=writer,
                clock=clock,
                rng=Random(),
                deadline=deadline,
                allow_gaps=allow_gaps,
                load_query=load[0],
                load_metric=load[1],
            )
            found = await recorder.run(span)
            if not found:
                raise InvalidInput("Prometheus has no usage of containers in this time", field="--prometheus")
            if client is not None:
                # What the objects say today; Prometheus does not keep them.
                await write_objects(client, clock, writer, namespace)
    finally:
        if client is not None:
            await client.close()


async def _record_live(
    invocation: Invocation,
    output: Path,
    duration: timedelta,
    step: timedelta,
    namespace: str | None,
    load_metric: str,
    hidden: Pseudonyms | None,
    audit: bool,
    address: str | None,
    token: str,
    agents: tuple[str, ...],
) -> None:
    clock, client = SystemClock(), client_of(invocation)
    seconds = _whole(step)

    known = [Place(address)] if address else await find_places(invocation, token=token)

    async def explain(kind: str, key: ObjectKey) -> dict[str, Any] | None:
        for place in known:
            found = await ask_quietly(invocation, place, f"/explain/{kind}/{key}", token=token)
            if isinstance(found, dict):
                return found
        return None

    async def agent_events() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for each in agents:
            answer = await get_json(each, "/events", token=token)
            found += (answer or {}).get("Events") or ()
        return found

    manifest = Manifest(
        source="live",
        interval_seconds=seconds,
        period_seconds=period_of(duration.total_seconds(), seconds),
        start=int(clock.now().timestamp()),
    )
    try:
        with Writer(output, manifest, pseudonyms=hidden) as writer:
            recorder = LiveRecorder(
                client,
                clock,
                writer,
                namespace=namespace,
                resolution=step,
                load_metric=load_metric,
                explain=explain if audit else None,
                agents=agent_events if agents else None,
            )
            stop = asyncio.Event()
            with _stopped_by_signals(stop):
                await recorder.run(duration, stop=stop)
            if stop.is_set():
                lasted = clock.now().timestamp() - manifest.start
                writer.counted_by(period_of(lasted, seconds))
                click.echo(f"ended after {lasted:.0f} of {duration.total_seconds():.0f} seconds", err=True)
    finally:
        await client.close()


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM end a recording early instead of losing it; the second one ends the command."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def ended() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    with suppress(NotImplementedError, ValueError, RuntimeError):  # only the main thread gets signals
        for number in numbers:
            loop.add_signal_handler(number, ended)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            for number in numbers:
                loop.remove_signal_handler(number)


@contextmanager
def _cleaned_up_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does: what is half written is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _whole(duration: timedelta) -> int:
    seconds = int(duration.total_seconds())
    if seconds < 1:
        raise InvalidInput("must be at least a second", field="--interval")
    return seconds


def _tell(output: Path) -> None:
    manifest = Recording(output).manifest
    rows = manifest.rows
    click.echo(
        f"{output}: {rows.get('containers', 0)} containers, {rows.get('usage', 0)} samples, "
        f"{rows.get('load', 0)} of load, {rows.get('oom_kills', 0)} OOM kills, "
        f"{rows.get('objects', 0)} changes of objects, {rows.get('decisions', 0)} decisions, {len(manifest.gaps)} gaps"
    )
    for reason, count in sorted(manifest.notes.items()):
        click.echo(f"  {count} {reason}")
