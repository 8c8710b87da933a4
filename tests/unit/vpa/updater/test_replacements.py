"""The breakers over several runs, restarts included."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import Event
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.errors import Unavailable
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import SizeLimits
from kubetide.vpa.updater.core.breaker import CLOSED, BreakerState, condition_from
from kubetide.vpa.updater.core.budget import Creator, creator_of
from kubetide.vpa.updater.core.memory import Memory, PastEviction, disruption_of
from kubetide.vpa.updater.core.plan import Observation
from kubetide.vpa.updater.replacements import BreakerWatch

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
KEY = ObjectKey("default", "web")
RS = Creator("default", "ReplicaSet", "web-1")
DS = Creator("default", "DaemonSet", "web-1")
TARGET = {"cpu": "300m", "memory": "256Mi"}


class Statuses:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[BreakerState] = []
        self.down = False

    async def write_breaker(
        self, key: ObjectKey, state: BreakerState, *, now: datetime, known: Sequence[Condition] = ()
    ) -> VerticalPodAutoscaler | None:
        if self.down:
            raise Unavailable("the API server is away")
        self.written.append(state)
        return None


class Quiet:
    def publish(self, event: Event) -> None:
        return


@dataclass
class World:
    """A workload, its VPA, and an updater's breakers."""

    pods: list[Pod]
    state: BreakerState = CLOSED
    creator: Creator = RS
    replicas: int = 2
    usage: dict[str, int] | None = None
    memory: Memory = field(default_factory=Memory)
    evictor: Statuses = field(default_factory=Statuses)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.memory = Memory()
        self.watch = BreakerWatch(
            self.memory,
            workload=lambda creator: [pod for pod in self.pods if creator_of(pod) == creator],
            evictor=self.evictor,
            recorder=Quiet(),
            tolerance=0.1,
            enabled=True,
        )

    def run(self, now: datetime) -> BreakerState:
        if self.evictor.written:
            self.state = self.evictor.written[-1]
        raw = make_vpa("web", mode="Recreate", recommendation={"main": TARGET})
        told = condition_from(self.state)
        if told is not None:
            status, reason, message = told
            entry = {"type": "UpdatesPaused", "status": status, "reason": reason, "message": message}
            raw["status"]["conditions"] = [{**entry, "lastTransitionTime": "2026-01-05T12:00:00Z"}]
        observation = Observation(
            vpa=convert(raw, VerticalPodAutoscaler),
            pods=tuple(self.pods),
            stated={self.creator: self.replicas},
            limits=SizeLimits(usage=self.usage),
        )
        run_virtual(self.watch.begin_run([observation], None, now=now))
        return self.memory.breakers[KEY]

    def announce(self, now: datetime) -> bool:
        return run_virtual(self.watch.announce(KEY, self.pods[0], now=now))


def pod(name: str, *, minutes: float, cpu: str = "100m", memory: str = "128Mi", kind: str = "ReplicaSet") -> Pod:
    raw = make_pod(name, uid=name, containers=[make_container(cpu=cpu, memory=memory)])
    raw["metadata"]["ownerReferences"] = [{"kind": kind, "name": "web-1", "controller": True}]
    made = NOW + timedelta(minutes=minutes)
    raw["metadata"]["creationTimestamp"] = made.strftime("%Y-%m-%dT%H:%M:%SZ")
    return convert(raw, Pod)


OLD = [pod("a", minutes=-60), pod("b", minutes=-50)]


def announced() -> World:
    world = World(list(OLD))
    assert world.run(NOW) == CLOSED
    assert world.announce(NOW)
    world.restart()
    return world


def test_an_announcement_names_the_youngest_pod_that_is_known() -> None:
    world = announced()
    assert world.evictor.written == [BreakerState(awaited=NOW - timedelta(minutes=50))]


def test_an_announcement_is_written_once_for_all_evictions_that_nobody_has_looked_at() -> None:
    world = World(list(OLD))
    world.run(NOW)
    assert world.announce(NOW)
    assert world.announce(NOW)
    assert len(world.evictor.written) == 1


def test_nothing_is_announced_where_it_cannot_be_written() -> None:
    world = World(list(OLD))
    world.run(NOW)
    world.evictor.down = True
    assert not world.announce(NOW)


@pytest.mark.parametrize(
    ("came", "strikes", "open_"),
    [
        pytest.param([OLD[1]], 0, True, id="a-pod-is-missing"),
        pytest.param([OLD[1], pod("c", minutes=1)], 1, False, id="the-replacement-is-unchanged"),
        pytest.param([OLD[1], pod("c", minutes=1, cpu="300m", memory="256Mi")], 0, False, id="it-carries"),
        pytest.param(OLD, 0, False, id="it-never-happened"),
        pytest.param([pod("c", minutes=1), pod("d", minutes=2)], 2, False, id="two-are-unchanged"),
    ],
)
def test_what_came_of_an_eviction_is_judged_after_a_restart(came: list[Pod], strikes: int, open_: bool) -> None:
    world = announced()
    world.pods = came
    state = world.run(NOW + timedelta(minutes=3))
    assert (state.strikes, KEY in world.memory.inherited) == (strikes, open_)
    assert (state.awaited is not None) == open_
    # Looking twice changes nothing.
    assert world.run(NOW + timedelta(minutes=4)).strikes == strikes


def test_a_replacement_that_never_comes_is_not_waited_for_longer_than_an_hour() -> None:
    world = announced()
    world.pods = [OLD[1]]
    world.run(NOW)
    assert KEY in world.memory.inherited
    assert world.run(NOW + timedelta(minutes=61)) == CLOSED
    assert KEY not in world.memory.inherited


def test_where_nobody_says_how_many_pods_there_should_be_one_has_to_come() -> None:
    old = [pod("a", minutes=-60, kind="DaemonSet"), pod("b", minutes=-50, kind="DaemonSet")]
    world = World(list(old), creator=DS)
    world.run(NOW)
    assert world.announce(NOW)
    world.restart()
    world.run(NOW + timedelta(minutes=1))
    assert KEY in world.memory.inherited
    world.pods = [old[1], pod("c", minutes=1, kind="DaemonSet")]
    assert world.run(NOW + timedelta(minutes=2)).strikes == 1
    assert KEY not in world.memory.inherited


def test_memory_that_is_kept_because_its_usage_is_unknown_does_not_prove_the_webhook() -> None:
    big = [pod(name, minutes=-60, memory="1Gi", cpu="300m") for name in ("a", "b")]
    world = World(list(big), usage={})
    world.run(NOW)
    assert world.announce(NOW)
    gone = disruption_of(name="a", uid="a", at=NOW, evicted=True, known={"a", "b"})
    before: dict[str, Any] = {}
    world.memory.begin(PastEviction(vpa=KEY, creator=RS, disruption=gone, before=before, expected={}), judged=True)
    world.pods = [big[1], pod("c", minutes=1, memory="1Gi", cpu="300m")]
    assert world.run(NOW + timedelta(minutes=1)).strikes == 1


def test_an_eviction_that_needs_no_replacement_any_more_is_forgotten() -> None:
    world = World(list(OLD))
    world.run(NOW)
    assert world.announce(NOW)
    gone = disruption_of(name="x", uid="x", at=NOW, evicted=True, known={"x", "a", "b"})
    world.memory.begin(PastEviction(vpa=KEY, creator=RS, disruption=gone, before={}, expected={}), judged=True)
    assert world.run(NOW + timedelta(minutes=1)).awaited is not None
    world.memory.settle(RS, [])
    assert world.run(NOW + timedelta(minutes=2)) == CLOSED
    assert world.evictor.written[-1] == CLOSED


def test_an_eviction_that_is_refused_every_minute_is_announced_once() -> None:
    world = World(list(OLD))
    for minute in range(3):
        now = NOW + timedelta(minutes=minute)
        world.run(now)
        assert world.announce(now)
        world.watch.refused(KEY)
        run_virtual(world.watch.publish(now=now))
    assert len(world.evictor.written) == 1
    # Once nobody tries any more, it is taken back.
    world.run(NOW + timedelta(minutes=3))
    run_virtual(world.watch.publish(now=NOW + timedelta(minutes=3)))
    assert world.evictor.written[-1] == CLOSED


def test_a_strike_is_in_the_status_before_the_next_eviction() -> None:
    world = World(list(OLD), state=BreakerState(strikes=1, detail="once"))
    world.run(NOW)
    assert world.announce(NOW)
    assert replace(world.evictor.written[-1], awaited=None) == BreakerState(strikes=1, detail="once")
