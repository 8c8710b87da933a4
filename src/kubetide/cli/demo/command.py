"""`kubetide demo`: a working day of a web shop on a simulated cluster, with every controller at work.

Everything runs in this process: the embedded API server, the simulated cluster, and the controllers as they would run
against a real one. Time is virtual and paced by `--speed`; the same seed makes the same day at any pace. At the end the
same day runs once more without kubetide, as fast as it can, and the two are compared.
"""

import asyncio
import io
import logging
import signal
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from kubetide.cli.demo.day import DEFAULT_SPEED, Outcome, day_without
from kubetide.cli.demo.keyboard import keyboard
from kubetide.cli.demo.showing import Ports, Showing
from kubetide.cli.demo.summary import make_summary
from kubetide.cli.demo.view import LiveView, PlainView, View
from kubetide.dashboard.core.screen import render, text_of
from kubetide.durations import parse_duration
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.load.scenario_file import load_scenario
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.errors import InvalidInput
from kubetide.kube.client.decoding import tune_gc
from kubetide.simulate.controllers import ALL


class _Speed(click.ParamType[Any]):
    """A number of virtual seconds per real second, or `max`."""

    name = "speed"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if value is None or isinstance(value, float):
            return value
        if str(value) == "max":
            return 0.0
        try:
            speed = float(str(value))
        except ValueError:
            speed = 0.0
        if not 0 < speed < 1e9:
            self.fail(f"{value!r} is neither a positive number nor max", param, ctx)
        return speed


class _Size(click.ParamType[Any]):
    """The size of a terminal."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if isinstance(value, tuple):
            return value
        width, _, height = str(value).partition("x")
        if not width.isdigit() or not height.isdigit() or not 0 < int(width) * int(height) <= 10**6:
            self.fail(f"{value!r} is not a size such as 80x24", param, ctx)
        return int(width), int(height)


@click.command("demo")
@click.option(
    "--speed", type=_Speed(), default=f"{DEFAULT_SPEED:g}", show_default=True, help="Demo seconds per second, or max."
)
@click.option("--duration", default="", help="Demo time after which it ends, such as 2h. Default: the scenario's.")
@click.option("--seed", type=int, help="Another seed makes another day.")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Another scenario than the web shop.",
)
@click.option("--plain", is_flag=True, help="Lines only, also on a terminal.")
@click.option("--bare", is_flag=True, help="Only the cluster, without kubetide's controllers.")
@click.option("--no-compare", is_flag=True, help="Do not run the day once more without kubetide, to compare.")
@click.option(
    "--capture",
    type=_Size(),
    metavar="WIDTHxHEIGHT",
    help="Print the screen as it is at the end, for a terminal of this size, and nothing else.",
)
@click.option("--http", is_flag=True, help="Serve the API for kubectl, and a dashboard for browsers.")
@click.option("--port", type=click.IntRange(0, 65535), default=6443, show_default=True, help="Port for --http.")
@click.option(
    "--status-port",
    type=click.IntRange(0, 65535),
    default=9316,
    show_default=True,
    help="Port on which --http also answers kubetide node status and kubetide explain.",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    default=8950,
    show_default=True,
    help="Port of the dashboard of --http; a free one where it is taken.",
)
@click.pass_obj
def command(
    invocation: object,
    speed: float,
    duration: str,
    seed: int | None,
    scenario: Path | None,
    plain: bool,
    bare: bool,
    no_compare: bool,
    capture: tuple[int, int] | None,
    http: bool,
    port: int,
    status_port: int,
    dashboard_port: int,
) -> None:
    """Show a simulated cluster under load: what changes, and why.

    Three nodes, a web shop with its daily load, a leaky service and batch jobs, from six in the morning. Ends by
    itself after twelve hours of demo time, or with Ctrl-C, and prints a summary.

    On a terminal + and - double and halve the speed, space stops time and lets it go on, Tab explains one workload
    after the other, l filters the lines, s injects a spike or an outage, q ends.
    """
    _configure_logging(invocation)
    loaded = load_scenario(scenario) if scenario is not None else scenarios.load("webshop")
    length = _length(duration) if duration else parse_duration(loaded.duration)
    if length <= timedelta(0):
        raise InvalidInput("must be longer than nothing", field="--duration")
    if http and not speed:
        raise InvalidInput("--http needs a pace: kubectl lives in real time", field="--speed")
    live = sys.stdout.isatty() and not plain and bool(speed) and capture is None
    view: View = LiveView() if live else PlainView(sys.stdout if capture is None else io.StringIO())
    speed = 0.0 if capture is not None else speed
    tune_gc()
    # The keyboard is given back last, whichever way the showing ends.
    with keyboard(sys.stdin) if live else nullcontext() as keys:
        showing = Showing(
            loaded,
            view,
            length=length,
            of=parse_duration(loaded.duration) if capture is not None else None,
            names=() if bare else ALL,
            seed=seed,
            speed=speed or None,
            keys=keys,
            ports=Ports(api=port, status=status_port, dashboard=dashboard_port) if http else None,
        )
        outcome = run_virtual(_until_terminated(showing), start=loaded.start, speed=speed or None)
    view.close()
    if capture is not None:
        click.echo("\n".join(text_of(render(outcome.state, *capture))))
        return
    without = None
    if not bare and not no_compare and outcome.elapsed > timedelta(0):
        if live:
            click.echo("Comparing with the same day without kubetide (Ctrl-C: do not wait) ...", err=True)
        try:
            without = day_without(showing.scenario, seed=showing.seed, length=outcome.elapsed)
        except KeyboardInterrupt:
            without = None
    view.end(make_summary(outcome, without))


def _length(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="--duration") from error


async def _until_terminated(showing: Showing) -> Outcome:
    """Show it; SIGTERM ends it as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await showing.run()


def _configure_logging(invocation: object) -> None:
    """Show logs only to those who ask for them: the view shows what happens."""
    configure = getattr(invocation, "configure_logging", None)
    if configure is not None:
        configure()
    if not getattr(invocation, "verbosity", 0):
        logging.getLogger("kubetide").setLevel(logging.ERROR)
