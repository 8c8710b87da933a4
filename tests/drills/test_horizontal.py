"""Counts: metrics that fail in every combination, caches that lag, conflicts, rollouts, a VPA on the same metric."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise, product
from typing import Any

from drills.drill import Run, drill
from drills.stage import Scene, play
from kubetide.embedded.apiserver.rest.status import internal
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.curves import Constant, Curve, Diurnal, Ramp, Step
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa
from kubetide.vpa.recommender.settings import HpaConflicts

Raw = dict[str, Any]
SLOW = Scenario(tick="15s")
"""Nobody looks at what happens between two scrapes."""
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
STATES = ("up", "down", "missing", "nan", "stale")


def external(name: str, average: str = "1") -> Raw:
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def count(scene: Scene, name: str = "web", namespace: str = "default") -> int:
    found = scene.cluster.world.get(DEPLOYMENTS, StoreKey(namespace, name))
    assert found is not None
    return int(found["spec"]["replicas"])


def _is(scene: Scene, wanted: int) -> bool:
    return count(scene) == wanted


def scales(scene: Scene) -> list[int]:
    """Return the counts that kubetide wrote and the server accepted."""
    return [
        int(event.body["spec"]["replicas"])
        for event in scene.log.events
        if event.subresource == "scale" and event.accepted and event.verb in ("update", "patch")
    ]


class Metrics:
    """External metrics called after their state: `up-…`, `down-…`, `missing-…`, `nan-…`, `stale-…`."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.value = "4"

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        state = metric.partition("-")[0]
        if state == "down":
            raise internal("the adapter is down")
        if state == "missing":
            return []
        at = self.scene.now - (timedelta(days=1) if state == "stale" and self.value != "4" else timedelta(0))
        value = "NaN" if state == "nan" and self.value != "4" else self.value
        return [{"metricName": metric, "metricLabels": {}, "timestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}", "value": value}]


@drill(
    "metric-failures",
    shows="two and three metrics, each up, down, missing, not a number or stale: a count falls only if all are "
    "up, and "
    "rises as long as one is",
    figure="combinations, of 150, that shrank on a failed metric or did not grow on a good one",
    bound=0,
)
def test_a_count_falls_only_if_every_metric_is_there(run: Run) -> float:
    combinations = [*product(STATES, repeat=2), *product(STATES, repeat=3)]

    async def main(scene: Scene) -> float:
        scene.cluster.add_node("large", cpu="64", memory="256Gi", pods=2000)
        fake = Metrics(scene)
        scene.cluster.metrics.external = fake.external  # type: ignore[method-assign]
        for number, states in enumerate(combinations):
            name = f"w{number}"
            await scene.cluster.apply(make_deployment(name, replicas=4, cpu="1m", memory="1Mi"))
            metrics = [external(f"{state}-{place}") for place, state in enumerate(states)]
            await scene.cluster.apply(make_hpa(name, target=name, maximum=20, metrics=metrics, behavior=AT_ONCE))
        await scene.start("hpa")
        await scene.pass_time(minutes=1)
        begin = scene.now
        fake.value = "2"
        await scene.pass_time(minutes=3)
        for number, states in enumerate(combinations):
            if set(states) != {"up"}:
                scene.since(begin, f"its metrics are {', '.join(states)}", name=f"w{number}")
        wrong = sum(count(scene, f"w{n}") != (2 if set(s) == {"up"} else 4) for n, s in enumerate(combinations))
        fake.value = "8"
        await scene.pass_time(minutes=1)
        return wrong + sum(count(scene, f"w{n}") < 8 for n, s in enumerate(combinations) if "up" in s)

    return play(run, main, scenario=SLOW)


@drill(
    "stale-cache-and-conflicts",
    shows="watches fall silent, and every second write of a scale meets a conflict that is not there",
    figure="writes of a count beyond one for each of the six changes of load",
    bound=0,
)
def test_stale_caches_and_conflicts_cost_no_second_write(run: Run) -> float:
    changes = (4, 6, 8, 12, 6, 3)

    async def main(scene: Scene) -> float:
        await scene.cluster.apply(make_deployment("web", replicas=2, cpu="10m", memory="16Mi"))
        await scene.cluster.apply(make_hpa("web", maximum=20, metrics=[external("queue")], behavior=AT_ONCE))
        scene.cluster.metrics.set_external_metric("default", "queue", 2.0)
        await scene.start("hpa")
        await scene.pass_time(minutes=1)
        faults = scene.cluster.api.faults
        faults.resources = frozenset({"horizontalpodautoscalers", "deployments", "pods"})
        faults.dropped, faults.conflicts = 1.0, 0.5
        for wanted in changes:
            scene.cluster.metrics.set_external_metric("default", "queue", float(wanted))
            await scene.cluster.wait_for(partial(_is, scene, wanted), timeout=timedelta(minutes=3))
            await scene.pass_time(minutes=1)
        return len(scales(scene)) - len(changes)

    return play(run, main)


@drill(
    "idle-rollout",
    shows="a hundred replicas that use just what they should are rolled out with a surge of a quarter",
    figure="changes of the count",
    bound=0,
)
def test_an_idle_rollout_changes_no_count(run: Run) -> float:
    async def main(scene: Scene) -> float:
        scene.cluster.add_node("large", cpu="64", memory="256Gi", pods=1000)
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
        made = make_deployment("web", replicas=100, cpu="100m", memory="16Mi", strategy=strategy)
        await scene.cluster.apply(made)
        await scene.cluster.apply(make_hpa("web", minimum=2, maximum=200, cpu_percent=50))
        scene.cluster.set_usage("default", "web", cpu="50m", memory="16Mi")
        await scene.start("hpa")
        await scene.pass_time(minutes=10)
        assert count(scene) == 100
        for version in ("2", "3"):
            stored = scene.cluster.world.get(DEPLOYMENTS, StoreKey("default", "web"))
            assert stored is not None
            template = stored["spec"]["template"]
            template = {**template, "metadata": {**template["metadata"], "annotations": {"version": version}}}
            scene.cluster.world.put_spec(DEPLOYMENTS, stored, {**stored["spec"], "template": template})
            await scene.pass_time(minutes=15)
        return len(scales(scene))

    return play(run, main)


@dataclass(frozen=True, slots=True)
class Hastened:
    """A curve that goes through its time faster."""

    curve: Curve
    factor: float

    def level(self, elapsed: float, week: float) -> float:
        return self.curve.level(elapsed * self.factor, week * self.factor)


HOUR = 3600.0
SHAPES: Mapping[str, tuple[Curve, int]] = {
    "constant": (Constant(100.0), 0),
    "step": (Step(((0.0, 100.0), (3 * HOUR, 400.0), (9 * HOUR, 100.0))), 1),
    "ramp": (Ramp(100.0, 400.0, 2 * HOUR, 8 * HOUR), 0),
    "diurnal": (Diurnal(50.0, 400.0, peak_hour=12.0), 1),
}
"""Load, and how often its own direction changes after the start."""


@drill(
    "hpa-and-vpa-on-one-metric",
    shows="an HPA and a VPA that both look at CPU, under constant load, a step, a ramp and a day, with "
    "`--hpa-conflicts=avoid`",
    figure="changes of direction of the count beyond those of the load, in the worst case",
    bound=1,
    short="the load of a day in two hours",
)
def test_an_hpa_and_a_vpa_on_one_metric_do_not_chase_each_other(run: Run) -> float:
    hours = 24 if run.whole else 2

    def reversals(curve: Curve) -> int:
        async def main(scene: Scene) -> int:
            await scene.cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="256Mi"))
            await scene.cluster.apply(make_hpa("web", minimum=2, maximum=30, cpu_percent=60))
            await scene.cluster.apply(make_vpa("web"))
            scene.cluster.set_load("default", "web", Hastened(curve, 24 / hours))
            await scene.start("hpa")
            await scene.start("recommender", hpa_conflicts=HpaConflicts.AVOID)
            await scene.start("admission", local_name="vpa")
            await scene.start("updater")
            await scene.pass_time(minutes=30)
            before = len(scales(scene))
            await scene.pass_time(hours=hours - 0.5)
            # A plateau is no direction; what counts is up after down and down after up.
            written = scales(scene)[max(before - 1, 0) :]
            directions = [after > first for first, after in pairwise(written) if after != first]
            return sum(first != after for first, after in pairwise(directions))

        return play(run, main, nodes=6, scenario=SLOW)

    return max(reversals(curve) - own for curve, own in SHAPES.values())
