"""`kubetide up`: the embedded API server with a simulated cluster behind it: three nodes, or what a scenario says.

A simulation may go faster or slower than real time (`--speed`), and on a terminal keys change that while it runs
(`cli.demo.pace`). Its time starts at the present, or where the data it goes on with had got to: time never goes back.
kubetide's controllers can run inside its time (`--with`): they need no clock, port or webhook of their own.
"""

import asyncio
import ipaddress
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubetide.cli.demo.keyboard import Keyboard, keyboard
from kubetide.cli.demo.pace import Pace
from kubetide.clock import Clock, LoopClock, SystemClock
from kubetide.durations import parse_duration
from kubetide.embedded.apiserver.gates import parse_gates
from kubetide.errors import InvalidInput

if TYPE_CHECKING:
    from kubetide.embedded.sim.load.scenario import Scenario

AGENT_INTERVAL = timedelta(seconds=5)


@click.command("up")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep everything in this directory, so that the next start goes on where this one ended.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=6443, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the kubeconfig. Default: kubetide.kubeconfig, in the data directory if there is one.",
)
@click.option(
    "--sim",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run a simulated cluster (nodes, controllers, load, metrics) as this scenario says. Default: three nodes.",
)
@click.option("--bare", is_flag=True, help="The API server alone: no nodes, no controllers, nothing is scheduled.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.001, max=1e9, max_open=True),
    default=1.0,
    show_default=True,
    help="Pace of a simulation: its seconds per second. On a terminal + and - change it, space stops time, q ends.",
)
@click.option(
    "--with",
    "with_",
    default="",
    metavar="NAME,...",
    help="Run controllers inside the simulation, in its time: hpa, recommender, updater, admission, policy, slo, "
    "colocation, plan (WorkloadPlans), node (an agent on every node), or all but plan.",
)
@click.option("--agents", is_flag=True, help="The same as --with node.")
@click.option(
    "--status-port",
    "--agents-port",
    type=click.IntRange(0, 65535),
    default=9316,
    show_default=True,
    help="Port on which --with answers kubetide explain and kubetide node status; 0 takes a free one.",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    default=8950,
    show_default=True,
    help="Port of the dashboard of --with; a free one where it is taken.",
)
@click.option(
    "--event-ttl", default="1h", show_default=True, help="How long events are kept after their last change; 0: always."
)
@click.option(
    "--feature-gates",
    default="",
    metavar="NAME=BOOL,...",
    help="Features of the API server, as kube-apiserver takes them: HPAConfigurableTolerance (true), HPAScaleToZero "
    "(false).",
)
@click.option("--audit", type=click.Path(path_type=Path, dir_okay=False), help="Append one JSON line per request here.")
@click.option(
    "--audit-level",
    type=click.Choice(["Metadata", "Request"]),
    default="Metadata",
    show_default=True,
    help="How much a line of the audit log holds: Request adds the bodies of writes.",
)
@click.option(
    "--allow-remote", is_flag=True, help="Listen on an address that other machines can reach. Not for production."
)
@click.pass_obj
def command(
    invocation: object,
    data: Path | None,
    host: str,
    port: int,
    kubeconfig: Path | None,
    sim: Path | None,
    bare: bool,
    speed: float,
    with_: str,
    agents: bool,
    status_port: int,
    dashboard_port: int,
    event_ttl: str,
    feature_gates: str,
    audit: Path | None,
    audit_level: str,
    allow_remote: bool,
) -> None:
    """Run an embedded Kubernetes API server; kubectl works on it.

    Writes a kubeconfig, prints one line when it is ready, and stops on SIGTERM or Ctrl-C.
    """
    configure = getattr(invocation, "configure_logging", None)
    if configure is not None:
        configure()
    if not allow_remote and not is_loopback(host):
        raise InvalidInput(f"{host} can be reached by other machines; say --allow-remote if that is meant")
    names = _names(with_, agents=agents)
    if bare and (sim is not None or speed != 1.0 or names):
        raise InvalidInput("--bare simulates nothing: it goes without --sim, --speed, --with and --agents")
    lifetime = parse_duration(event_ttl)
    if lifetime < timedelta(0):
        raise InvalidInput("must not be negative", field="--event-ttl")
    gates = parse_gates(feature_gates)
    scenario = None if bare else _scenario(sim)
    target = (kubeconfig or (data or Path()) / "kubetide.kubeconfig").absolute()
    with keyboard(sys.stdin) if not bare and sys.stdout.isatty() else nullcontext() as keys:
        # Controllers decide by the cluster's own clock, which stands still between two events of the simulation.
        paced = speed != 1.0 or keys is not None or bool(names)
        main = _serve(
            data=data,
            host=host,
            port=port,
            kubeconfig=target,
            scenario=scenario,
            names=names,
            status_port=status_port,
            dashboard_port=dashboard_port,
            event_ttl=lifetime,
            gates=gates,
            audit=audit,
            audit_level=audit_level,
            pace=Pace(speed) if paced else None,
            keys=keys,
        )
        if paced:
            from kubetide.embedded.sim.time.loop import run_virtual

            run_virtual(main, start=SystemClock().now().astimezone(UTC), speed=speed)
        else:
            asyncio.run(main)


def _names(text: str, *, agents: bool) -> tuple[str, ...]:
    """Return the controllers to run beside the cluster."""
    if not text and not agents:
        return ()
    from kubetide.simulate.controllers import NODE, parse_with

    named = parse_with(text) if text else ()
    return (*named, NODE) if agents and NODE not in named else named


def _scenario(path: Path | None) -> "Scenario":
    """Return what is simulated: what a file says, or three idle nodes."""
    from kubetide.embedded.sim.load.scenario import Scenario, ScenarioNodes
    from kubetide.embedded.sim.load.scenario_file import load_scenario

    return Scenario(name="up", nodes=[ScenarioNodes(name="node", count=3)]) if path is None else load_scenario(path)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(
    *,
    data: Path | None,
    host: str,
    port: int,
    kubeconfig: Path,
    scenario: "Scenario | None",
    names: Sequence[str],
    status_port: int,
    dashboard_port: int,
    event_ttl: timedelta,
    gates: frozenset[str],
    audit: Path | None,
    audit_level: str,
    pace: Pace | None,
    keys: Keyboard | None,
) -> None:
    from kubetide.embedded.apiserver.auth.audit import AuditLevel, AuditLog
    from kubetide.embedded.apiserver.auth.identity import make_identity
    from kubetide.embedded.apiserver.http import serve
    from kubetide.embedded.apiserver.rest.requests import ADMIN
    from kubetide.embedded.apiserver.server import ApiServer
    from kubetide.embedded.apiserver.storage.datadir import write_private
    from kubetide.embedded.apiserver.storage.journal import Journal, resume_time

    real = SystemClock()
    async with AsyncExitStack() as stack:
        journal = Journal(data) if data is not None else None
        identity = make_identity(journal, now=real.now())
        store = journal.load() if journal is not None else None
        level = AuditLevel(audit_level)
        # Certificates are checked by clients in real time, whatever time the cluster lives in.
        now = real.now()
        begin = resume_time(store.everything(), now) if store is not None else now
        clock: Clock = LoopClock(begin) if pace is not None or begin > now else real
        api = ApiServer(
            clock=clock,
            seed=None,
            store=store,
            token_key=identity.token_key,
            tokens={identity.token: ADMIN},
            gates=gates,
            audit=stack.enter_context(AuditLog(audit, clock, level=level)) if audit is not None else None,
        )
        if journal is not None:
            journal.start()
            stack.push_async_callback(journal.close)
        serving = await stack.enter_async_context(
            serve(api, host=host, port=port, tls=identity.tls(host, now=real.now()))
        )
        explain = ""
        if scenario is not None:
            from kubetide.embedded.sim.cluster import SimCluster

            if names:
                from kubetide.cli.node.simulated import answering
                from kubetide.simulate.controllers import Controllers

                controllers = Controllers()
                explain = await stack.enter_async_context(answering(controllers, status_port))
            cluster = await stack.enter_async_context(SimCluster(scenario, api=api, event_ttl=event_ttl))
            if names:
                await stack.enter_async_context(controllers.at_work(cluster, names, agent_interval=AGENT_INTERVAL))
        else:
            from kubetide.embedded.sim.housekeeping import housekeeping

            await stack.enter_async_context(housekeeping(api, event_ttl=event_ttl))
        write_private(kubeconfig, identity.kubeconfig(serving.url, explain=explain))
        if names:
            from kubetide.cli.dashboard.beside import beside
            from kubetide.cli.dashboard.command import Options

            url = stack.enter_context(beside(Options(kubeconfig=kubeconfig, port=dashboard_port)))
            click.echo(f"dashboard: {url}")
        if "node" in names:
            click.echo(f"agents: kubetide node status --address {explain}")
        click.echo(f"ready: {serving.url}  export KUBECONFIG={kubeconfig}")
        await _until_told_to_stop(pace, keys)


async def _until_told_to_stop(pace: Pace | None, keys: Keyboard | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if pace is None or keys is None:
        await stop.wait()
        return
    from kubetide.embedded.sim.time.loop import set_speed

    current = pace

    def press(key: str) -> None:
        nonlocal current
        current = current.press(key)
        set_speed(current.effective)
        if current.ended:
            stop.set()
        else:
            click.echo(current.hint())

    with keys.listen(press):
        click.echo(pace.hint())
        try:
            await stop.wait()
        finally:
            # What is stopped now may wait for timers, and must not wait for a time that stands still or crawls.
            set_speed(max(current.speed, 1.0))
