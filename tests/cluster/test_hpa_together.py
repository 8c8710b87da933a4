"""Autoscalers at rest are looked after together: nothing about them comes out otherwise."""

import gc
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import EVERYTHING
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Constant, Step
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.hpa.metrics_cache import UsageList
from kubetide.hpa.reconciler import HpaState
from kubetide.hpa.resting import AT_A_MOMENT, MOMENTS
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Running, autoscaler
from simulated.cluster import run

HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")
TURNS = "horizontal_pod_autoscaler_controller_reconciliations_total"
TOGETHER, ALONE = HpaSettings(scale_watch_from=1), HpaSettings(scale_watch_from=0)
SETTLED = timedelta(minutes=8)
"""After so long pods are no longer starting, and their autoscalers rest."""


async def prepare(cluster: SimCluster, *, minutes: float = 0) -> None:
    await cluster.apply(make_deployment("web", replicas=4, cpu="500m", memory="64Mi"))
    await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50))
    steps = ((60 * minutes, 200.0), (60 * minutes + 1200, 100.0)) if minutes else ()
    cluster.set_load("default", "web", Step(steps, initial=100.0))


async def prepare_many(cluster: SimCluster, count: int) -> None:
    for number in range(count):
        name = f"web-{number}"
        await cluster.apply(make_deployment(name, replicas=1, cpu="20m", memory="16Mi"))
        await cluster.apply(make_hpa(name, target=name, maximum=3, cpu_percent=50))
        cluster.set_load("default", name, Constant(1.0))


def resting(running: Running) -> int:
    """Return how many are due together with others."""
    return sum(state.moment is not None for state in running.controller._states.values())


@pytest.mark.parametrize("arrays_from", [pytest.param(1, id="on-arrays"), pytest.param(1000, id="one-by-one")])
def test_sizes_are_those_of_autoscalers_that_are_looked_after_alone(
    arrays_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubetide.hpa.resting.ARRAYS_FROM", arrays_from)

    def sizes(settings: HpaSettings) -> list[tuple[float, int]]:
        async def main(cluster: SimCluster) -> list[tuple[float, int]]:
            await prepare(cluster, minutes=12)
            async with autoscaler(cluster, settings) as running:
                return await running.follow(timedelta(minutes=40), "default", "web")

        return run(main, nodes=6)

    together, alone = sizes(TOGETHER), sizes(ALONE)
    assert [size for _, size in together] == [size for _, size in alone]
    assert len(together) > 2
    assert all(abs(one - other) < 20 for (one, _), (other, _) in zip(together, alone, strict=True))


def test_at_rest_there_is_no_request_but_for_usage_and_what_is_shown_is_the_newest() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster, TOGETHER) as running:
            await cluster.run_for(SETTLED)
            assert resting(running) == 1
            before, turns = running.requests.counts.copy(), running.counted(TURNS)
            await cluster.run_for(timedelta(minutes=5))
            asked = running.requests.counts - before
            assert running.counted(TURNS) - turns == pytest.approx(20, abs=2)
            assert (asked["scale"], asked["rescale"]) == (0, 0)
            assert asked["metrics"] <= 23
            trace = running.controller.explain("hpa", "default/web")
            assert trace is not None
            assert trace["desired"] == 4
            assert trace["at"] == trace["history"][-1]["at"]

    run(main, nodes=6)


@pytest.mark.parametrize("change", ["spec", "scale", "annotation", "deleted"])
def test_what_changes_about_one_at_rest_is_acted_on(change: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster, TOGETHER) as running:
            await cluster.run_for(SETTLED)
            assert resting(running) == 1
            key = StoreKey("default", "web")
            stored, target = cluster.world.get(HPAS, key), cluster.world.get(DEPLOYMENTS, key)
            assert stored is not None
            assert target is not None
            if change == "spec":
                cluster.world.put_spec(HPAS, stored, {**stored["spec"], "minReplicas": 6})
            elif change == "scale":
                cluster.world.put_spec(DEPLOYMENTS, target, {**target["spec"], "replicas": 1})
            elif change == "annotation":
                annotations = {"kubetide.io/dry-run": "true"}
                cluster.world.put(HPAS, stored, metadata={**stored["metadata"], "annotations": annotations})
            else:
                cluster.world.remove(HPAS, key)
            await cluster.run_for(timedelta(seconds=40))
            if change == "spec":
                assert running.replicas("default", "web") == 6
            elif change == "scale":
                assert running.replicas("default", "web") >= 2
            elif change == "deleted":
                assert not running.controller._states
            assert resting(running) == 0

    run(main, nodes=6)


def test_of_many_each_has_its_reconcile_once_a_period() -> None:
    count = MOMENTS + 20

    async def main(cluster: SimCluster) -> None:
        await prepare_many(cluster, count)
        async with autoscaler(cluster, TOGETHER) as running:
            await cluster.run_for(SETTLED)
            moments = Counter(state.moment for state in running.controller._states.values() if state.moment is not None)
            assert resting(running) > 0.9 * count
            # No more moments than their number asks for, but for those that began too late to join one.
            assert max(moments.values()) <= AT_A_MOMENT
            assert len(moments) <= 2 * count / AT_A_MOMENT
            turns = running.counted(TURNS)
            await cluster.run_for(timedelta(minutes=2))
            assert running.counted(TURNS) - turns == pytest.approx(8 * count, rel=0.1)

    run(main, nodes=4)


def test_nobody_is_lost_where_a_moment_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[float] = []

    async def main(cluster: SimCluster) -> None:
        await prepare_many(cluster, 5)
        async with autoscaler(cluster, TOGETHER) as running:
            await cluster.run_for(SETTLED)
            assert resting(running) == 5
            together = running.controller._resting
            end_all = together._end_all

            async def fail_once(due: Mapping[ObjectKey, HpaState], moment: float) -> None:
                if not failures:
                    failures.append(moment)
                    raise RuntimeError("out of order")
                await end_all(due, moment)

            monkeypatch.setattr(together, "_end_all", fail_once)
            turns = running.counted(TURNS)
            await cluster.run_for(timedelta(minutes=2))
            assert failures
            assert running.counted(TURNS) - turns == pytest.approx(8 * 5, abs=5)
            assert resting(running) == 5

    run(main, nodes=4)


def test_lists_of_usage_that_come_often_are_not_kept_by_those_at_rest() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare_many(cluster, 30)
        async with autoscaler(cluster, TOGETHER) as running:
            await cluster.run_for(SETTLED)
            # As samples do that wake others.
            for _ in range(30):
                await running.controller._metrics.refresh_usage([("default", EVERYTHING)])
                await cluster.run_for(timedelta(seconds=1))
            assert resting(running) > 20
            gc.collect()
            # The last one, and one that is about to be replaced; all that were read within a period otherwise.
            assert sum(isinstance(one, UsageList) for one in gc.get_objects()) <= 2
            trace = running.controller.explain("hpa", "default/web-7")
            assert trace is not None
            assert trace["at"] == trace["history"][-1]["at"]

    run(main, nodes=4)
