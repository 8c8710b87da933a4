"""`kubetide demo`: a working day of a web shop on a simulated cluster, with every controller at work.

Everything runs in this process: the embedded API server, the simulated cluster, and the controllers as they would run
against a real one. Time is virtual and paced by `--speed`; with `--speed max` nothing waits, and the same seed prints
the same bytes. On a terminal keys change the pace while it runs (`cli.pace`).
"""

import asyncio
import logging
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec

from kubetide.cli.demo.keyboard import Keyboard, keyboard
from kubetide.cli.demo.pace import Pace
from kubetide.cli.demo.view import LiveView, PlainView, View, make_summary
from kubetide.clock import SystemClock
from kubetide.durations import parse_duration
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger
from kubetide.embedded.sim.load.scenario import Scenario, load_scenario
from kubetide.embedded.sim.narration import Line, Narrator
from kubetide.embedded.sim.time.loop import run_virtual, set_speed
from kubetide.errors import InvalidInput
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.control.manager import Component, Manager, running
from kubetide.telemetry import Telemetry

AGENT_INTERVAL = timedelta(seconds=30)
REFRESH_REAL_SECONDS = 0.5
STOPPING_SPEED = 240.0
SAMPLE = timedelta(minutes=1)

_COUNTED = (
    ("ScalingReplicaSet", "scalings of a replica set"),
    ("SuccessfulRescale", "decisions of a horizontal autoscaler"),
    ("EvictedByVPA", "evictions by the vertical autoscaler"),
    ("InPlaceResizedByVPA", "resizes in place"),
    ("OOMKilling", "kills for lack of memory"),
    ("FailedScheduling", "pods that had to wait for room"),
)


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


@click.command("demo")
@click.option("--speed", type=_Speed(), default="240", show_default=True, help="Demo seconds per second, or max.")
@click.option("--duration", default="", help="Demo time after which it ends, such as 2h. Default: the scenario's.")
@click.option("--seed", type=int, help="Another seed makes another day.")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Another scenario than the web shop.",
)
@click.option("--plain", is_flag=True, help="Lines only, also on a terminal.")
@click.option("--bare", is_flag=True, help="Only the cluster, without kubetide's controllers.")
@click.option("--http", is_flag=True, help="Serve the API as well, so that kubectl can look.")
@click.option("--port", type=click.IntRange(0, 65535), default=6443, show_default=True, help="Port for --http.")
@click.option(
    "--status-port",
    type=click.IntRange(0, 65535),
    default=9316,
    show_default=True,
    help="Port on which --http also answers kubetide node status and kubetide explain.",
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
    http: bool,
    port: int,
    status_port: int,
) -> None:
    """Show a simulated cluster under load: what changes, and why.

    Three nodes, a web shop with its daily load, a leaky service and batch jobs, from six in the morning. Ends by
    itself after twelve hours of demo time, or with Ctrl-C, and prints a summary.

    On a terminal + and - double and halve the speed, space stops time and lets it go on, q ends.
    """
    _configure_logging(invocation)
    loaded = load_scenario(scenario) if scenario is not None else scenarios.load("webshop")
    length = _length(duration) if duration else parse_duration(loaded.duration)
    if length <= timedelta(0):
        raise InvalidInput("must be longer than nothing", field="--duration")
    if http and not speed:
        raise InvalidInput("--http needs a pace: kubectl lives in real time", field="--speed")
    live = sys.stdout.isatty() and not plain and bool(speed)
    view: View = LiveView() if live else PlainView(sys.stdout)
    tune_gc()
    # The keyboard is given back last, whichever way the showing ends.
    with keyboard(sys.stdin) if live else nullcontext() as keys:
        demo = Demo(loaded, view, length=length, seed=seed, bare=bare, speed=speed or None, keys=keys)
        ports = (port, status_port) if http else None
        run_virtual(_until_terminated(demo, ports), start=loaded.start, speed=speed or None)


def _length(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="--duration") from error


async def _until_terminated(demo: "Demo", ports: tuple[int, int] | None) -> None:
    """Show it; SIGTERM ends it as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await demo.run(ports=ports)


def _configure_logging(invocation: object) -> None:
    """The view tells what happens; logs are for those who ask for them."""
    configure = getattr(invocation, "configure_logging", None)
    if configure is not None:
        configure()
    if not getattr(invocation, "verbosity", 0):
        logging.getLogger("kubetide").setLevel(logging.ERROR)


class Demo:
    """One showing."""

    def __init__(
        self,
        scenario: Scenario,
        view: View,
        *,
        length: timedelta,
        seed: int | None = None,
        bare: bool = False,
        speed: float | None = None,
        keys: Keyboard | None = None,
    ) -> None:
        self._scenario = scenario
        self._view = view
        self._length = length
        self._seed = scenario.seed if seed is None else seed
        self._bare = bare
        self._pace = None if speed is None else Pace(speed)
        self._keys = keys
        self._pressed = asyncio.Event()
        self._kubeconfig = Path("kubetide.kubeconfig").absolute()
        self._reasons: Counter[str] = Counter()
        self._announce: Callable[[str], None] = lambda _: None

    async def run(self, *, ports: tuple[int, int] | None = None) -> None:
        """Show it to the end, or until cancelled; with ports, serve the API and what the controllers explain there."""
        http_port, status_port = ports or (None, None)
        async with SimCluster(self._scenario, seed=self._seed) as cluster:
            ledger = Ledger(cluster, cluster.clock.now())
            narrator = Narrator(cluster.clock.now, self._tell)
            self._view.begin(self._title(cluster))
            cluster.world.on_any(narrator.changed)
            cluster.world.on_any(self._count)
            try:
                async with self._serving(cluster, http_port), self._controllers(cluster, status_port):
                    with self._steered():
                        await self._watch(cluster, ledger)
            except asyncio.CancelledError:
                # Ctrl-C: the day ends early, the summary is still worth having.
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
            except BaseException:
                self._view.close()
                raise
            elapsed = timedelta(seconds=round(cluster.elapsed()))
            counts = {text: self._reasons[reason] for reason, text in _COUNTED if self._reasons[reason]}
            self._view.end(make_summary(ledger, counts, elapsed))

    def _title(self, cluster: SimCluster) -> str:
        scenario = self._scenario
        pace = "as fast as it can" if self._pace is None else f"{self._pace.speed:g} times real time"
        return f"{scenario.name}: {len(cluster.hosts)} nodes, {len(scenario.workloads)} workloads, {pace}"

    def _tell(self, line: Line) -> None:
        self._view.tell(line)

    def _count(self, resource: object, old: object, new: object) -> None:
        if isinstance(new, dict) and new.get("kind") == "Event":
            known = isinstance(old, dict) and old.get("count") == new.get("count")
            if not known:
                self._reasons[str(new.get("reason"))] += 1

    @contextmanager
    def _steered(self) -> Iterator[None]:
        """Let keys change the pace, if there are any."""
        if self._keys is None or self._pace is None:
            yield
            return
        try:
            with self._keys.listen(self._press):
                self._view.hint(self._pace.hint())
                yield
        finally:
            # What is stopped now may wait for timers, and must not wait for a time that stands still or crawls.
            set_speed(max(self._pace.speed, STOPPING_SPEED))

    def _press(self, key: str) -> None:
        if self._pace is None:
            return
        self._pace = self._pace.press(key)
        set_speed(self._pace.effective)
        self._view.hint(self._pace.hint())
        self._pressed.set()

    async def _watch(self, cluster: SimCluster, ledger: Ledger) -> None:
        """Sample every minute of demo time, refresh a few times a second, until the end."""
        step = SAMPLE.total_seconds()
        end = self._length.total_seconds()
        next_sample = step
        while cluster.elapsed() < end - 1e-6:
            refresh = step if self._pace is None else min(step, REFRESH_REAL_SECONDS * self._pace.speed)
            await self._sleep(min(refresh, end - cluster.elapsed(), max(0.001, next_sample - cluster.elapsed())))
            if self._pace is not None and self._pace.ended:
                return
            if cluster.elapsed() + 1e-6 >= next_sample:
                ledger.sample(step / 3600)
                next_sample += step
            if self._pace is not None:
                self._view.refresh(cluster.clock.now(), ledger.look())

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or less if a key was pressed: at another speed the next look is due at another time."""
        if self._keys is None:
            await asyncio.sleep(seconds)
            return
        self._pressed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pressed.wait()

    @asynccontextmanager
    async def _controllers(self, cluster: SimCluster, status_port: int | None) -> AsyncIterator[None]:
        if self._bare:
            yield
            return
        with TemporaryDirectory(prefix="kubetide-audit-") as audit:
            # The audit log is kept only where somebody can ask for it.
            components = demo_components(cluster, self._seed, audit=None if status_port is None else Path(audit))
            async with self._working(cluster, components, status_port):
                yield

    @asynccontextmanager
    async def _working(
        self, cluster: SimCluster, components: list[Component], status_port: int | None
    ) -> AsyncIterator[None]:
        """Run the components while the block lasts; what fails ends the showing."""
        manager = Manager(name="demo")
        for component in components:
            manager.add(component)
        async with running(manager), self._answering(cluster, manager, components, status_port):
            yield

    @asynccontextmanager
    async def _answering(
        self, cluster: SimCluster, manager: Manager, components: list[Component], port: int | None
    ) -> AsyncIterator[None]:
        """Answer `kubetide node status` and `kubetide explain` while the showing lasts."""
        if port is None:
            yield
            return
        from kubetide.cli.node.simulated import answering
        from kubetide.node.agent import NodeAgent

        agents = [component for component in components if isinstance(component, NodeAgent)]
        async with answering(agents, port, others=manager.explain) as taken:
            told = f"kubetide node status --address 127.0.0.1:{taken}"
            self._announce(f"127.0.0.1:{taken}")
            self._tell(Line(cluster.clock.now(), "agents", told))
            yield

    @asynccontextmanager
    async def _serving(self, cluster: SimCluster, port: int | None) -> AsyncIterator[None]:
        if port is None:
            yield
            return
        from kubetide.embedded.apiserver.auth.identity import make_identity
        from kubetide.embedded.apiserver.http import serve
        from kubetide.embedded.apiserver.rest.requests import ADMIN
        from kubetide.embedded.apiserver.storage.datadir import write_private

        real = SystemClock()
        identity = make_identity(None, now=real.now())
        cluster.api.tokens.add_fixed(identity.token, ADMIN)
        target = self._kubeconfig
        async with serve(
            cluster.api, host="127.0.0.1", port=port, tls=identity.tls("127.0.0.1", now=real.now())
        ) as serving:

            def announce(explain: str = "") -> None:
                write_private(target, identity.kubeconfig(serving.url, explain=explain))

            announce()
            self._announce = announce
            self._tell(Line(cluster.clock.now(), "api", f"{serving.url}  export KUBECONFIG={target}"))
            yield


def demo_components(cluster: SimCluster, seed: int, *, audit: Path | None = None) -> list[Component]:
    """Return every controller there is, and an agent for each node, on clients of the simulated cluster."""
    from kubetide.cli.node.simulated import make_agent
    from kubetide.settings import COMPONENTS
    from kubetide.wiring import Dependencies, build

    components: list[Component] = []
    for name, kind in COMPONENTS.items():
        settings = kind()
        if hasattr(settings, "leader_elect"):  # one of each: nobody to elect
            settings = msgspec.structs.replace(settings, leader_elect=False)
        world = Dependencies(
            client=cluster.client(),
            clock=cluster.clock,
            telemetry=Telemetry(),
            rng=random.Random(f"{seed}/{name}"),
            local_webhooks=cluster.api.admission,
        )
        components += build(name, world, settings)
    # Agents look twice a minute: every second would cost most of the demo.
    agents = [make_agent(cluster, node, seed, interval=AGENT_INTERVAL, audit=audit) for node in cluster.hosts]
    return [*components, *agents]
