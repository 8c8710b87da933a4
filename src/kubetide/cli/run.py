"""`kubetide run`: any set of controllers in one process.

The flags are those of upstream, in Go's syntax, so that existing manifests keep working; click only finds the verb.
"""

import asyncio
import importlib
import importlib.util
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime

import click
from click.shell_completion import CompletionItem

from kubetide import tracing
from kubetide.cli.compare import COMPARED, Comparison
from kubetide.cli.completion import Known, complete_flag, complete_value
from kubetide.cli.dry_run import Report
from kubetide.cli.go_flags import asks_for_help, describe_flags, global_words, take_globals, within_namespace
from kubetide.cli.main import Invocation
from kubetide.cli.settings_file import Sections, read_process
from kubetide.clock import Clock, SystemClock
from kubetide.config import Settings, load, options
from kubetide.errors import KubetideError, SettingsError
from kubetide.flags import ParsedFlags, parse_flags
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.client.settings import KubeSettings
from kubetide.kube.control.announcement import Announcement
from kubetide.kube.control.instruments import Instruments
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.manager import Component, Manager
from kubetide.kube.control.shards import ShardMembership
from kubetide.settings import COMPONENTS, ProcessSettings
from kubetide.telemetry import Telemetry
from kubetide.wiring import (
    WITHOUT_DRY_RUN,
    Dependencies,
    build,
    connection_limits,
    default_address,
    parse_names,
    process,
)

MAX_SKEW = timedelta(seconds=30)
"""How far the API server's clock may be from ours; `Date` has whole seconds, and an answer takes a while."""


def complete_components(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last of a list of components, for the shell."""
    *given, last = incomplete.split(",")
    if not given and "all".startswith(last):
        names = [*COMPONENTS, "all"]
    else:
        names = [name for name in COMPONENTS if name not in given]
    return [",".join((*given, name)) for name in names if name.startswith(last)]


class _FlagCommand(click.Command):
    """A command whose flags depend on its first argument; options about the cluster may stand before that too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, moved = list(args), []
        while rest and (count := global_words(rest[0])):
            moved += rest[:count]
            del rest[:count]
        return super().parse_args(ctx, [*rest, *moved])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [*super().shell_complete(ctx, incomplete), *complete_flag(_known_to(ctx), incomplete)]


def _known_to(ctx: click.Context) -> Known:
    """Return the flags that the components typed so far have; none if they make no sense yet."""
    try:
        return known_flags(parse_names(ctx.params.get("components") or ""))
    except SettingsError:
        return {}


def complete_words(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the value of the last flag, for the shell."""
    return complete_value(_known_to(ctx), ctx.params.get("flags") or (), incomplete)


@click.command(
    "run",
    cls=_FlagCommand,
    short_help="Run controllers against a cluster.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.argument("components", shell_complete=complete_components)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_words)
@click.pass_context
def command(ctx: click.Context, components: str, flags: tuple[str, ...]) -> None:
    """Run COMPONENTS (hpa, recommender, updater, admission, policy, slo, colocation, metrics, plan; comma-separated).

    `all` stands for all of them but metrics, which takes metrics.k8s.io over from the server that is there, and plan,
    which needs the CRD of WorkloadPlans.

    FLAGS are the flags of upstream: -flag=x, --flag=x and --flag x all work; a flag that several components
    share may be prefixed (--recommender.kube-api-qps=50). `kubetide settings` lists them.
    """
    invocation: Invocation = ctx.obj
    names = parse_names(components)
    if asks_for_help(flags):
        click.echo(ctx.get_help())
        click.echo(describe_flags(known_flags(names)), nl=False)
        return
    invocation, flags = take_globals(invocation, flags, known_flags(names))
    parsed = read_flags(names, flags)
    invocation.configure_logging(parsed.verbosity)
    own, file = read_process(parsed.by_section["process"], os.environ)
    # All settings are read before anything starts: a typing error must not leave half a process running.
    parts = {name: _part(invocation, name, parsed.by_section[name], file) for name in names}
    form = dry_form(invocation, own)
    refuse_dry_runs(names, own)
    tune_gc()
    with (
        tracing.exporting(own.tracing_endpoint, own.tracing_ratio),
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(_run(parts, own, form))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop: uvloop, a fifth less CPU a request, where the extra `fast` is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return make


@dataclass(frozen=True, slots=True)
class _Part:
    """What one component was told."""

    settings: Settings
    connection: KubeSettings

    def address(self, name: str) -> str:
        return getattr(self.settings, "address", "") or default_address(name)

    @property
    def health_address(self) -> str:
        return getattr(self.settings, "health_address", "")


def _part(invocation: Invocation, name: str, flags: dict[str, str], file: Sections) -> _Part:
    given = _with_invocation(invocation, flags)
    return _Part(
        load(COMPONENTS[name], flags=within_namespace(invocation, name, flags), env=os.environ, file=file.get(name)),
        load(KubeSettings, flags=given, env=os.environ, file=file.get("kube")),
    )


def known_flags(names: tuple[str, ...]) -> Known:
    """Return the flags of the components; those of the connection belong to every component."""
    connection = options(KubeSettings)
    known = {name: (*options(COMPONENTS[name]), *connection) for name in names}
    return {**known, "process": options(ProcessSettings)}


def read_flags(names: tuple[str, ...], flags: tuple[str, ...]) -> ParsedFlags:
    """Sort the flags by component."""
    parsed = parse_flags(flags, known_flags(names))
    if parsed.words:
        raise SettingsError(f"unexpected word {parsed.words[0]!r}")
    return parsed


def dry_form(invocation: Invocation, own: ProcessSettings) -> str:
    """Return the form in which a dry run prints; raise for one that there is not, and where nothing is printed."""
    form = invocation.output or "text"
    if form not in ("text", "json"):
        raise SettingsError(f"{form!r} is not one of text, json", field="flag -o")
    if invocation.output == "json" and not (own.dry_run or own.compare):
        raise SettingsError("only --dry-run and --compare print anything; for logs say --log-format json", field="-o")
    return form


def refuse_dry_runs(names: tuple[str, ...], own: ProcessSettings) -> None:
    """Raise for combinations that cannot be meant, before anything is asked of a cluster."""
    if own.once:
        raise SettingsError("is for kubetide node --dry-run", field="flag --once")
    if own.dry_run and own.compare:
        raise SettingsError("goes without --dry-run: it writes nothing either", field="flag --compare")
    without = set(WITHOUT_DRY_RUN) if own.dry_run else set(COMPONENTS) - set(COMPARED) if own.compare else set()
    if refused := [name for name in names if name in without]:
        possible = ", ".join(name for name in COMPONENTS if name not in without)
        flag = "--dry-run" if own.dry_run else "--compare"
        raise SettingsError(f"not for {', '.join(refused)}: only {possible}", field=f"flag {flag}")


def _dry_run(
    own: ProcessSettings, form: str, clock: Clock, telemetry: Telemetry, client: Client
) -> Report | Comparison | None:
    as_json = form == "json"
    if own.compare:
        return Comparison(click.echo, clock, telemetry, client, as_json)
    return Report(click.echo, clock, telemetry, as_json) if own.dry_run else None


async def _run(parts: dict[str, _Part], own: ProcessSettings, form: str = "text") -> None:
    clock = SystemClock()
    telemetry = Telemetry()
    instruments = Instruments(telemetry)
    rng = random.Random()
    limits = connection_limits(own)
    announcement = Announcement(os.environ)
    built: dict[str, list[Component]] = {}
    clients: list[Client] = []
    dry_run: Report | Comparison | None = None
    try:
        for name, part in parts.items():
            client, access = connect(
                part.connection,
                clock=clock,
                rng=rng,
                observe=instruments.request,
                announce=_announcing(announcement, instruments.of(name)),
            )
            clients.append(client)
            dry_run = dry_run or _dry_run(own, form, clock, telemetry, client)
            built[name] = build(
                name,
                Dependencies(
                    client=client,
                    clock=clock,
                    telemetry=telemetry,
                    rng=rng,
                    limits=limits,
                    dry_run=dry_run,
                    access=access,
                ),
                part.settings,
            )
        if dry_run is not None:
            built["dry-run"] = [dry_run]
        await refuse_other_time(clients[0], clock)
        first = next(iter(parts))
        listen = f":{own.listen}" if own.listen.isdecimal() else own.listen
        address = listen or parts[first].address(first)
        health = parts[first].health_address if len(parts) == 1 else ""
        manager = process(
            built,
            telemetry,
            address=address,
            health_address=health,
            explain_token=own.explain_token,
            limits=limits,
            announcement=announcement,
        )
        if isinstance(dry_run, Report):
            dry_run.explains = manager.explain
        await run_until_signal(manager)
    finally:
        for client in clients:
            await client.close()


def _announcing(announcement: Announcement, show: Callable[[object], None]) -> Callable[[object], None]:
    """Return the `announce` of a client: its machinery is shown, and its electors tell where this process serves."""

    def watch(part: object) -> None:
        show(part)
        if isinstance(part, LeaderElector | ShardMembership):
            part.annotations = announcement.annotations

    return watch


async def refuse_other_time(client: Client, clock: Clock) -> None:
    """Raise if the server lives in another time: samples would come from the future, ages would be negative.

    A server that cannot be asked now is no reason not to start.
    """
    try:
        answer = await client.request("GET", "/version", retries=0)
    except KubetideError:
        return
    try:
        told = parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return
    apart = abs((told.astimezone(UTC) - clock.now()).total_seconds())
    if apart > MAX_SKEW.total_seconds():
        fix = "set the clocks right; in a simulation, run it inside: kubetide up --sim FILE --with NAME,... --speed N"
        raise KubetideError(f"the API server's clock is {apart:.0f} s away from this machine's; fix: {fix}")


def _with_invocation(invocation: Invocation, flags: dict[str, str]) -> dict[str, str]:
    """Add what stood before the verb, where no flag says otherwise."""
    found = dict(flags)
    if invocation.kubeconfig is not None:
        found.setdefault("kubeconfig", str(invocation.kubeconfig))
    if invocation.context:
        found.setdefault("context", invocation.context)
    return found


async def run_until_signal(
    manager: Manager,
    *,
    done: Callable[[], Awaitable[None]] | None = None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run until SIGTERM or SIGINT, or until `done` returns, call `stopping`, then stop in order."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(manager.run(), name=manager.name)
        ends = [group.create_task(_as_coroutine(stop.wait), name="signal")]
        if done is not None:
            ends.append(group.create_task(_as_coroutine(done), name="done"))
        await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
        stopping()
        for task in (*ends, work):
            task.cancel()


async def _as_coroutine(wait: Callable[[], Awaitable[object]]) -> None:
    await wait()
