"""One simulated day: the cluster, the controllers at work on it, and what it came to.

The day is the same whoever looks at it, over how many sockets, and at whatever pace: everything in here lives in
virtual time and waits for nothing else. What is real (ports, keys, the screen) is in `showing`, around it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from kubetide.cli.demo.controls import Controls
from kubetide.cli.demo.pace import Pace
from kubetide.cli.demo.story import Story
from kubetide.dashboard.core.model import State
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Account, Ledger
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.load.scenario import EventSpec, Scenario
from kubetide.embedded.sim.load.scenario_events import Announcement
from kubetide.embedded.sim.narration import Line, Narrator
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.simulate.controllers import Controllers
from kubetide.simulate.runs import digest

DEFAULT_SPEED = 240.0
AGENT_INTERVAL = timedelta(seconds=30)
"""Agents look twice a minute: every second would cost most of the demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a day came to."""

    elapsed: timedelta
    reasons: Counter[str]
    """How often each reason of an event occurred."""
    accounts: dict[WorkloadKey, Account]
    state: State
    """How things are at the end."""
    objects: str
    """A digest of every object of the cluster at the end."""


class Day:
    """A day that goes on."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.cluster = story.cluster
        self.reasons: Counter[str] = Counter()
        self.injected: list[EventSpec] = []

    async def live(self, length: timedelta, ended: asyncio.Event) -> Outcome:
        """Let it go on for so long, or until it is ended, or cancelled (Ctrl-C): what came of it is worth having."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(length.total_seconds()):
                    await ended.wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        # Copies: the cluster lives on for a moment while it is stopped.
        return Outcome(
            elapsed=timedelta(seconds=round(self.cluster.elapsed())),
            reasons=self.reasons.copy(),
            accounts={key: replace(account) for key, account in self.story.ledger.accounts.items()},
            state=self.story.state(Controls(pace=Pace(DEFAULT_SPEED))),
            objects=digest(self.cluster),
        )

    def inject(self, event: EventSpec) -> None:
        """Let something happen that the scenario does not have; from now on it is part of it."""
        self.injected.append(event)
        self.cluster.inject(event)

    def count(self, resource: object, old: object, new: object) -> None:
        """Count the events of the cluster by their reason."""
        if isinstance(new, dict) and new.get("kind") == "Event":
            known = isinstance(old, dict) and old.get("count") == new.get("count")
            if not known:
                self.reasons[str(new.get("reason"))] += 1


@asynccontextmanager
async def simulated_day(
    scenario: Scenario,
    api: ApiServer,
    controllers: Controllers,
    *,
    names: Sequence[str],
    seed: int,
    length: timedelta,
    tell: Callable[[Line], None] = lambda _: None,
) -> AsyncIterator[Day]:
    """Begin a day with the named controllers, and end it with the block."""
    cluster = SimCluster(scenario, seed=seed, api=api)
    ledger = Ledger(cluster)
    story = Story(cluster, ledger, controllers, length, cluster.clock.now())
    narrator = Narrator(cluster.clock.now, _both(story.log.append, tell))

    def announced(event: Announcement) -> None:
        story.events.append((cluster.clock.now(), event))
        narrator.announced(event)

    cluster.announce = announced
    ledger.attach()
    async with cluster:
        day = Day(story)
        cluster.world.on_any(narrator.changed)
        cluster.world.on_any(day.count)
        async with controllers.at_work(cluster, names, agent_interval=AGENT_INTERVAL):
            yield day


def day_without(scenario: Scenario, *, seed: int, length: timedelta) -> dict[WorkloadKey, Account]:
    """Return what the same day comes to without kubetide: replicas and requests stay as the manifests have them."""

    async def main() -> dict[WorkloadKey, Account]:
        api = ApiServer(clock=virtual_clock(), seed=seed)
        async with simulated_day(scenario, api, Controllers(), names=(), seed=seed, length=length) as day:
            return (await day.live(length, asyncio.Event())).accounts

    return run_virtual(main(), start=scenario.start)


def _both(*listeners: Callable[[Line], object]) -> Callable[[Line], None]:
    def tell(line: Line) -> None:
        for listener in listeners:
            listener(line)

    return tell
