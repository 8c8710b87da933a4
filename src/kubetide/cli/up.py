"""`kubetide up`: the embedded API server with a simulated cluster behind it: three nodes, or what a scenario says.

A simulation may go faster or slower than real time (`--speed`), and on a terminal keys change that while it runs
(`cli.pace`). Its time starts at the present, or where the data it goes on with had got to: time never goes back.
"""

import asyncio
import ipaddress
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from kubetide.cli.demo.keyboard import Keyboard, keyboard
from kubetide.cli.demo.pace import Pace
from kubetide.clock import Clock, LoopClock, SystemClock
from kubetide.durations import parse_duration
from kubetide.embedded.apiserver.gates import parse_gates
from kubetide.errors import InvalidInput

if TYPE_CHECKING:
    from kubetide.embedded.sim.cluster import SimCluster

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
@click.option("--agents", is_flag=True, help="Run kubetide's agent on every simulated node: NodeMetrics, node status.")
@click.option(
    "--agents-port",
    type=click.IntRange(0, 65535),
    default=9316,
    show_default=True,
    help="Port on which the agents answer kubetide node status; 0 takes a free one.",
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
    agents: bool,
    agents_port: int,
    event_ttl: str,
    feature_gates: str,
    audit: Path | None,
    allow_remote: bool,
) -> None:
    """Run an embedded Kubernetes API server; kubectl works on it.

    Writes a kubeconfig, prints one line when it is ready, and stops on SIGTERM or Ctrl-C.
    """
    configure = getattr(invocation, "configure_logging", None)
    if configure is not None:
        configure()
    if not allow_remote and not _is_loopback(host):
        raise InvalidInput(f"{host} can be reached by other machines; say --allow-remote if that is meant")
    if bare and (sim is not None or speed != 1.0 or agents):
        raise InvalidInput("--bare simulates nothing: it goes without --sim, --speed and --agents")
    lifetime = parse_duration(event_ttl)
    if lifetime < timedelta(0):
        raise InvalidInput("must not be negative", field="--event-ttl")
    gates = parse_gates(feature_gates)
    target = (kubeconfig or (data or Path()) / "kubetide.kubeconfig").absolute()
    with keyboard(sys.stdin) if not bare and sys.stdout.isatty() else nullcontext() as keys:
        paced = speed != 1.0 or keys is not None
        main = _serve(
            data=data,
            host=host,
            port=port,
            kubeconfig=target,
            sim=sim,
            bare=bare,
            agents_port=agents_port if agents else None,
            event_ttl=lifetime,
            gates=gates,
            audit=audit,
            pace=Pace(speed) if paced else None,
            keys=keys,
        )
        if paced:
            from kubetide.embedded.sim.time.loop import run_virtual

            run_virtual(main, start=SystemClock().now().astimezone(UTC), speed=speed)
        else:
            asyncio.run(main)


def _is_loopback(host: str) -> bool:
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
    sim: Path | None,
    bare: bool,
    agents_port: int | None,
    event_ttl: timedelta,
    gates: frozenset[str],
    audit: Path | None,
    pace: Pace | None,
    keys: Keyboard | None,
) -> None:
    from kubetide.embedded.apiserver.auth.audit import AuditLog
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
            audit=stack.enter_context(AuditLog(audit, clock)) if audit is not None else None,
        )
        if journal is not None:
            journal.start()
            stack.push_async_callback(journal.close)
        serving = await stack.enter_async_context(
            serve(api, host=host, port=port, tls=identity.tls(host, now=real.now()))
        )
        explain = ""
        if not bare:
            from kubetide.embedded.sim.cluster import SimCluster
            from kubetide.embedded.sim.load.scenario import Scenario, ScenarioNodes, load_scenario

            idle = Scenario(name="up", nodes=[ScenarioNodes(name="node", count=3)])
            simulated = SimCluster(idle if sim is None else load_scenario(sim), api=api, event_ttl=event_ttl)
            cluster = await stack.enter_async_context(simulated)
            if agents_port is not None:
                explain = await stack.enter_async_context(_agents(cluster, agents_port))
        else:
            from kubetide.embedded.sim.housekeeping import housekeeping

            await stack.enter_async_context(housekeeping(api, event_ttl=event_ttl))
        write_private(kubeconfig, identity.kubeconfig(serving.url, explain=explain))
        click.echo(f"ready: {serving.url}  export KUBECONFIG={kubeconfig}")
        await _until_told_to_stop(pace, keys)


@asynccontextmanager
async def _agents(cluster: "SimCluster", port: int) -> AsyncIterator[str]:
    """Run an agent on every node, answer for them, and give the address."""
    from kubetide.cli.node.simulated import answering, make_agent
    from kubetide.kube.control.manager import running
    from kubetide.telemetry import Telemetry

    telemetry = Telemetry()
    with TemporaryDirectory(prefix="kubetide-audit-") as audit:
        agents = [
            make_agent(cluster, node, cluster.seed, interval=AGENT_INTERVAL, telemetry=telemetry, audit=Path(audit))
            for node in cluster.hosts
        ]
        async with running(*agents), answering(agents, port, telemetry=telemetry) as taken:
            click.echo(f"agents: kubetide node status --address 127.0.0.1:{taken}")
            yield f"127.0.0.1:{taken}"


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
