"""Bad days: fail-over, a server that is away and comes back older, clocks that jump, requests that fail, full disks."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from drills.drill import Run, drill
from drills.stage import Scene, play
from drills.test_horizontal import AT_ONCE, count, external
from kubetide import crds
from kubetide.clock import Clock
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa
from simulated.recommending import recommended

Raw = dict[str, Any]
SLOW = Scenario(tick="15s")


async def web(scene: Scene, name: str = "web", *, replicas: int = 2, behavior: Raw | None = AT_ONCE) -> None:
    """Make a workload whose autoscaler follows a queue of its own, and whose VPA recommends only."""
    await scene.cluster.apply(make_deployment(name, replicas=replicas, cpu="10m", memory="16Mi"))
    queue = external(f"queue-{name}")
    await scene.cluster.apply(make_hpa(name, target=name, maximum=20, metrics=[queue], behavior=behavior))
    await scene.cluster.apply(make_vpa(name, target=name, mode="Off"))
    scene.cluster.set_usage("default", name, cpu="5m", memory="8Mi")
    wish(scene, replicas, name)


def wish(scene: Scene, replicas: int, name: str = "web") -> None:
    """Let the queue of a workload be worth so many replicas."""
    scene.cluster.metrics.set_external_metric("default", f"queue-{name}", float(replicas))


def _all_are(scene: Scene, wanted: Mapping[str, int]) -> bool:
    return all(count(scene, name) == replicas for name, replicas in wanted.items())


async def seconds_until(scene: Scene, condition: Callable[[], bool], *, minutes: float = 10) -> float:
    begin = scene.now
    await scene.cluster.wait_for(condition, timeout=timedelta(minutes=minutes), every=timedelta(seconds=0.5))
    return (scene.now - begin).total_seconds()


@drill(
    "fail-over-hpa",
    shows="the leading autoscaler is killed at the moment in which the load rises",
    figure="time until its standby has scaled, in the worst of five cases",
    bound=20,
    unit="s",
)
def test_the_standby_of_an_autoscaler_scales_in_time(run: Run) -> float:
    def once(moment: float) -> float:
        async def main(scene: Scene) -> float:
            await web(scene)
            leader = await scene.start("hpa", elect=True)
            await scene.pass_time(seconds=5)
            await scene.start("hpa", elect=True)
            await scene.pass_time(minutes=1, seconds=moment)
            leader.kill()
            wish(scene, 6)
            return await seconds_until(scene, lambda: count(scene) == 6)

        return play(run, main, scenario=SLOW)

    return max(once(moment) for moment in (0.0, 0.7, 1.1, 1.9, 7.3))


LEADERS = ("recommender", "updater", "slo", "policy", "plan")


@drill(
    "fail-over-others",
    shows="the leaders of recommender, updater (while it evicts), SLO controller, policy controller and plan "
    "controller are killed; of webhooks and metrics server every replica answers",
    figure="time until the standby leads, in the worst case",
    bound=40,
    unit="s",
)
def test_every_component_has_a_standby_that_takes_over(run: Run) -> float:
    async def main(scene: Scene) -> float:
        await web(scene)
        await scene.cluster.ensure_namespace("koordinator-system")
        await scene.cluster.apply(crds.load("workloadplans"))
        await scene.start("admission", local_name="vpa")
        leaders = [await scene.start(name, elect=True) for name in LEADERS]
        await scene.pass_time(minutes=1)
        standbys = [await scene.start(name, elect=True) for name in LEADERS]
        await scene.pass_time(minutes=5)
        assert [each.leading for each in (*leaders, *standbys)] == [True] * len(LEADERS) + [False] * len(LEADERS)
        await scene.cluster.apply(make_deployment("sized", replicas=12, cpu="900m", memory="16Mi"))
        await scene.cluster.apply(make_vpa("sized", target="sized", mode="Recreate"))
        scene.cluster.set_usage("default", "sized", cpu="5m", memory="8Mi")
        await scene.cluster.wait_for(lambda: evicted(scene) >= 3, timeout=timedelta(hours=1))
        for leader in leaders:
            leader.kill()
        before = evicted(scene)
        longest = await seconds_until(scene, lambda: all(each.leading for each in standbys))
        await scene.cluster.wait_for(lambda: evicted(scene) == 12, timeout=timedelta(hours=2))
        assert before < 12, "there was something left to take over"
        await scene.pass_time(minutes=10)
        return longest

    return play(run, main, nodes=3, scenario=SLOW)


def evicted(scene: Scene) -> int:
    return sum(event.subresource == "eviction" and event.accepted for event in scene.log.events)


class Jumping:
    """A clock that people set: it runs as the other one, with an offset."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()


@drill(
    "clock-jumps",
    shows="the clock of the process jumps by an hour, ahead or back, just after the load fell, and is set right five "
    "minutes later: while it is wrong nothing is believed, and nothing shrinks",
    figure="shortest time from the fall of the load to the smaller count (the window is 300 s)",
    bound=285,
    unit="s",
    at_least=True,
)
def test_a_clock_that_jumps_shrinks_nothing_early(run: Run) -> float:
    def after(*jumps: timedelta) -> float:
        async def main(scene: Scene) -> float:
            await web(scene, replicas=8, behavior=None)
            await scene.cluster.apply(make_vpa("sized", target="web", mode="Off"))
            clock = Jumping(scene.cluster.clock)
            await scene.start("hpa", clock=clock, elect=True)
            await scene.start("recommender", clock=clock, elect=True)
            await scene.pass_time(minutes=20)
            assert count(scene) == 8
            wish(scene, 2)
            begin = scene.now
            for jump in jumps:
                await scene.pass_time(seconds=20)
                clock.offset += jump
                await scene.pass_time(minutes=5 if clock.offset else 0)
                assert count(scene) == 8
            await scene.cluster.wait_for(lambda: count(scene) == 2, timeout=timedelta(hours=2))
            passed = (scene.now - begin).total_seconds()
            wish(scene, 5)
            await seconds_until(scene, lambda: count(scene) == 5, minutes=3)
            return passed

        return play(run, main, scenario=SLOW)

    hour = timedelta(hours=1)
    return min(after(*jumps) for jumps in ((hour, -hour), (-hour, hour)))


CODES = (400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504, 0)


def failing(random: Random, rate: float) -> Callable[[str, str], Response | Exception | None]:
    """Return an interference that lets requests fail with every code; 0 is a connection that is lost."""

    def interfere(method: str, path: str) -> Response | Exception | None:
        if random.random() >= rate:
            return None
        code = random.choice(CODES)
        if code == 0:
            return ConnectionLost("made up")
        body = b'{"kind":"Status","code":%d,"reason":"","message":"made up"}' % code
        return Response(code, {"content-type": "application/json"}, body)

    return interfere


@drill(
    "one-percent-failures",
    shows="every hundredth request of every component fails, with each code from 400 to 504 or without an answer, "
    "for a day",
    figure="longest time from a change of the load to the right count",
    bound=180,
    unit="s",
    short="an hour",
)
def test_a_day_on_which_every_hundredth_request_fails(run: Run) -> float:
    hours = 24 if run.whole else 1

    async def main(scene: Scene) -> float:
        names = ["a", "b", "c"]
        for name in names:
            await web(scene, name)
        await scene.cluster.ensure_namespace("koordinator-system")
        for number, name in enumerate(("hpa", "hpa", "recommender", "updater", "slo", "policy")):
            await scene.start(name, elect=True, interfere=failing(Random(number), 0.01))
        await scene.pass_time(minutes=2)
        random, longest = Random(7), 0.0
        for _ in range(hours * 6):
            # Further apart than the autoscaler's tolerance: from 12 to 11 it would rightly do nothing.
            wanted = {name: random.choice((1, 2, 3, 5, 8, 12)) for name in names}
            for name, replicas in wanted.items():
                wish(scene, replicas, name)
            begin = scene.now
            took = await seconds_until(scene, partial(_all_are, scene, wanted))
            longest = max(longest, took)
            await scene.cluster.run_for(begin + timedelta(minutes=10) - scene.now)
        assert all(recommended(scene.cluster, "default", name) for name in names)
        return longest

    return play(run, main, scenario=SLOW)
