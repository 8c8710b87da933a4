"""A day is shown: ports, keys and the screen around a simulated day, in real time.

Everything here only looks. Ports are open before the day begins and time stands still meanwhile; the screen is drawn
by real timers from a read model; a key changes the pace, or injects an event that is then part of the scenario.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec

from kubetide.cli.demo.controls import Controls, Injection
from kubetide.cli.demo.day import Day, Outcome, simulated_day
from kubetide.cli.demo.keyboard import Keyboard
from kubetide.cli.demo.pace import Pace
from kubetide.cli.demo.view import View
from kubetide.cli.node.simulated import answering
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.datadir import write_private
from kubetide.embedded.sim.load.scenario import EventSpec, Scenario
from kubetide.embedded.sim.narration import Line, nodes_text
from kubetide.embedded.sim.time.loop import set_speed, virtual_clock
from kubetide.kube.wire import rest, wire_timers
from kubetide.simulate.controllers import Controllers

REFRESH_SECONDS = 0.25
STOPPING_SPEED = 240.0
SPIKE_FACTOR = 3.0
DASHBOARD_INTERVAL = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the API, what the controllers explain, and the dashboard can be asked for."""

    api: int
    status: int
    dashboard: int = 0


class Showing:
    """One showing of a scenario, with the named controllers at work."""

    def __init__(
        self,
        scenario: Scenario,
        view: View,
        *,
        length: timedelta,
        of: timedelta | None = None,
        names: Sequence[str],
        seed: int | None = None,
        speed: float | None = None,
        keys: Keyboard | None = None,
        ports: Ports | None = None,
        kubeconfig: Path = Path("kubetide.kubeconfig"),
    ) -> None:
        self.scenario = scenario
        """With what was injected, once it has been shown."""
        self.seed = seed or scenario.seed
        self._view = view
        self._length = length
        self._of = of or length
        """The day that it is a part of."""
        self._names = names
        self._speed = speed
        self._controls = Controls(pace=Pace(speed or 1.0), workloads=len(scenario.workloads))
        self._keys = keys
        self._ports = ports
        self._kubeconfig = kubeconfig.absolute()
        self._ended = asyncio.Event()

    async def run(self) -> Outcome:
        """Show it to the end, or until cancelled, and return what came of it."""
        controllers = Controllers()
        api = ApiServer(clock=virtual_clock(), seed=self.seed)
        self._view.begin(self._title())
        async with AsyncExitStack() as stack:
            try:
                await self._open(stack, api, controllers)
                day = await stack.enter_async_context(
                    simulated_day(
                        self.scenario,
                        api,
                        controllers,
                        names=self._names,
                        seed=self.seed,
                        length=self._of,
                        tell=self._view.tell,
                    )
                )
                async with self._drawn(day):
                    with self._steered(day):
                        outcome = await day.live(self._length, self._ended)
                self.scenario = msgspec.structs.replace(self.scenario, events=[*self.scenario.events, *day.injected])
                return outcome
            except BaseException:
                self._view.close()
                raise

    def _title(self) -> str:
        nodes = nodes_text(sum(node.count for node in self.scenario.nodes))
        return f"{self.scenario.name}: {nodes}, {len(self.scenario.workloads)} workloads"

    # -- what it looks like

    @asynccontextmanager
    async def _drawn(self, day: Day) -> AsyncIterator[None]:
        """Draw a few times a second; where time knows no pace nobody could follow."""
        if self._speed is None:
            yield
            return
        async with asyncio.TaskGroup() as group:
            drawing = group.create_task(self._draw_on(day), name="screen")
            try:
                yield
                self._draw(day)  # the last screen shows the end, however little real time the showing took
            finally:
                drawing.cancel()

    async def _draw_on(self, day: Day) -> None:
        while True:
            self._draw(day)
            await rest(wire_timers(), REFRESH_SECONDS)

    def _draw(self, day: Day) -> None:
        self._view.draw(day.story.state(self._controls))

    # -- keys

    @contextmanager
    def _steered(self, day: Day) -> Iterator[None]:
        """Let keys have their way, if there are any."""
        if self._keys is None or self._speed is None:
            yield
            return
        try:
            with self._keys.listen(lambda key: self._press(key, day)):
                yield
        finally:
            # What is stopped now may wait for timers, and must not wait for a time that stands still or crawls.
            set_speed(max(self._controls.pace.speed, STOPPING_SPEED))

    def _press(self, key: str, day: Day) -> None:
        self._controls = self._controls.press(key)
        pace = self._controls.pace
        set_speed(pace.effective)
        if self._controls.injected is not None:
            day.inject(self._event(self._controls.injected, day))
        if pace.ended:
            self._ended.set()
        self._draw(day)

    def _event(self, what: Injection, day: Day) -> EventSpec:
        """Return the event behind a key, at the next whole second."""
        at = f"{int(day.cluster.elapsed()) + 1}s"
        if what == "metrics":
            return EventSpec(at=at, do="outage", of="metrics")
        if what == "node":
            down = day.cluster.kubelets.stopped_nodes
            up = [name for name in day.cluster.hosts if name not in down]
            return EventSpec(at=at, do="outage", of=f"node/{(up or list(day.cluster.hosts))[-1]}")
        loaded = [f"{each.namespace}/{each.name}" for each in self.scenario.workloads if each.load is not None]
        workloads = list(day.story.ledger.latest)
        chosen = "" if self._controls.selected is None else "/".join(workloads[self._controls.selected])
        of = chosen if chosen in loaded or not loaded else loaded[0]
        return EventSpec(at=at, do="spike", of=of, factor=SPIKE_FACTOR)

    # -- ports

    async def _open(self, stack: AsyncExitStack, api: ApiServer, controllers: Controllers) -> None:
        """Open the ports, while time stands still."""
        if self._ports is None:
            return
        from kubetide.embedded.apiserver.http import serve

        set_speed(0.0)
        real = SystemClock()
        identity = make_identity(None, now=real.now())
        api.tokens.add_fixed(identity.token, ADMIN)
        tls = identity.tls("127.0.0.1", now=real.now())
        serving = await stack.enter_async_context(serve(api, host="127.0.0.1", port=self._ports.api, tls=tls))
        explain = ""
        if self._names:
            explain = await stack.enter_async_context(answering(controllers, self._ports.status))
        write_private(self._kubeconfig, identity.kubeconfig(serving.url, explain=explain))
        now = api.clock.now()
        self._view.tell(Line(now, "api", f"{serving.url}  export KUBECONFIG={self._kubeconfig}"))
        if explain:
            self._view.tell(Line(now, "agents", f"kubetide node status --address {explain}"))
        from kubetide.cli.dashboard.beside import beside
        from kubetide.cli.dashboard.command import Options

        options = Options(kubeconfig=self._kubeconfig, port=self._ports.dashboard, interval=DASHBOARD_INTERVAL)
        url = stack.enter_context(beside(options))
        self._view.tell(Line(now, "dashboard", url))
        set_speed(self._speed)
