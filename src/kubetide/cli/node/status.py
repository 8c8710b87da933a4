"""`kubetide node status`: the pods of a node as its agent sees them, once or live.

While it is live an agent may be away for a while: the last table stays, with the reason below it.
"""

import asyncio
from typing import Any

import click

from kubetide.cli.main import Invocation
from kubetide.cli.name_completion import complete_nodes
from kubetide.cli.places import Place, ask_at, ask_everywhere
from kubetide.errors import Unavailable

_MI = 1024 * 1024


@click.command("status", short_help="Pods by QoS class with usage, limits, throttling, pressure and predictions.")
@click.option("--address", help="Where the agent serves. Default: it is looked for, here and in the cluster.")
@click.option(
    "--node",
    "node_name",
    default="self",
    shell_complete=complete_nodes,
    help="One node, where one process serves several, or of the cluster. Default: all of that process.",
)
@click.option("--token", default="", help="The agent's explain token, from another machine.")
@click.option("--watch", "-w", is_flag=True, help="Show it again and again.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_obj
def command(
    invocation: Invocation, address: str | None, node_name: str, token: str, watch: bool, interval: float, output: str
) -> None:
    """Show the pods of a node by QoS class."""
    asyncio.run(_show(invocation, address, node_name, token, watch, interval, output))


async def _show(
    invocation: Invocation, address: str | None, node_name: str, token: str, watch: bool, interval: float, output: str
) -> None:
    import msgspec
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    place, status = await find(invocation, address, node_name, token)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
        return
    if not watch:
        console.print(tables(status))
        return
    with Live(tables(status), console=console, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(interval)
            try:
                status, problem = await fetch(invocation, place, node_name, token), ""
            except Unavailable as error:
                problem = str(error)
            live.update(Group(tables(status), problem) if problem else tables(status), refresh=True)


async def find(invocation: Invocation, address: str | None, node_name: str, token: str) -> tuple[Place, dict[str, Any]]:
    """Return where the agent is, and its first answer."""
    if address:
        return Place(address), await fetch(invocation, Place(address), node_name, token)
    node = "" if node_name == "self" else node_name
    for place, found in await ask_everywhere(invocation, f"/explain/status/{node_name}", token=token, node=node):
        if isinstance(found, dict) and ("nodes" in found or "pods" in found):
            return place, found
    raise no_agent(node)


async def fetch(invocation: Invocation, place: Place, node_name: str, token: str) -> dict[str, Any]:
    """Ask the agent."""
    found = await ask_at(invocation, place, f"/explain/status/{node_name}", token=token)
    if not isinstance(found, dict):
        raise Unavailable(f"{place} answers for no node {'' if node_name == 'self' else node_name}".rstrip())
    return found


def no_agent(node: str) -> Unavailable:
    """Return what to say when nobody was found; with the ways to be found."""
    about = f"for node {node} " if node else ""
    more = "" if node else ", --node for one in the cluster"
    return Unavailable(
        f"no agent answers {about}at the address in the kubeconfig or on 127.0.0.1:9316; --address{more}"
    )


def tables(status: dict[str, Any]) -> Any:
    """Return what to show: one node, or all that a process answers for."""
    from rich.console import Group

    return Group(*(table(node) for node in status["nodes"])) if "nodes" in status else table(status)


def table(status: dict[str, Any]) -> Any:
    """Return the table for a terminal."""
    from rich import box
    from rich.table import Table

    title = (
        f"{status['node']}   CPU {_cores(status['cpuCores'])} (system {_cores(status['systemCpuCores'])})   "
        f"memory {_size(status['memoryBytes'])} (system {_size(status['systemMemoryBytes'])})"
    )
    shown = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("QOS", no_wrap=True)
    shown.add_column("POD", overflow="fold", ratio=1)
    for name in ("CPU/LIMIT", "THROT", "MEMORY/LIMIT", "PSI C/M/I", "PEAK"):
        shown.add_column(name, justify="right", no_wrap=True)
    previous = None
    for pod in status["pods"]:
        if previous is not None and previous != pod["qos"]:
            shown.add_section()
        previous = pod["qos"]
        predicted = pod["predicted"] or {}
        phase = "" if pod["phase"] == "Running" else f" ({pod['phase']})"
        shown.add_row(
            pod["qos"],
            f"{pod['namespace']}/{pod['name']}{phase}",
            f"{_cores(pod['cpuCores'])}/{_millis(pod['cpuLimitMillis'])}",
            _percent(pod["throttled"]),
            f"{_size(pod['memoryBytes'])}/{_size(pod['memoryLimitBytes'])}",
            "/".join(_number(pod["pressure"][name]) for name in ("cpu", "mem", "io")),
            f"{_millis(predicted.get('cpuMillis'))} {_size(predicted.get('memoryBytes'))}",
        )
    return shown


def _cores(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _millis(value: int | None) -> str:
    return "-" if value is None else f"{value / 1000:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _size(value: float | None) -> str:
    return "-" if value is None else f"{value / _MI:.0f}Mi"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
