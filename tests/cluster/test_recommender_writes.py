"""What the recommender writes when, on the simulated cluster in virtual time."""

import json
from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from kubetide.api.objects import scheme
from kubetide.api.objects.meta import ObjectKey
from kubetide.embedded.apiserver.faults import Faults
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.core.significance import LITTLE
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.cluster import run
from simulated.recommending import CHECKPOINTS, VPAS, RunningRecommender, checkpoint, condition, recommender

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WEB = ObjectKey("default", "web")
# Bounds are trusted after an hour instead of a day, so that a few hours are a long history.
USUAL = RecommenderSettings(confidence_interval_cpu=HOUR, confidence_interval_memory=HOUR)
EVERY_LOOP = replace(USUAL, status_interval=timedelta(0), checkpoint_interval=timedelta(0))
NOISY = """
tick: 1m
metrics: {interval: 1m, delay: 0s}
nodes:
- {name: node, count: 2, cpu: "8", memory: 32Gi}
workloads:
- name: web
  replicas: 2
  requests: {cpu: 500m, memory: 256Mi}
  load: {curve: diurnal, low: 20, high: 200, peak-hour: 14, noise: 0.3}
  cpu-per-request: 10m
  memory: {base: 200Mi, per-request: 1Mi}
"""


async def _versions(cluster: SimCluster, span: timedelta) -> tuple[int, int]:
    """Return in how many minutes of a span the status and the checkpoint were written."""
    statuses, stored = set(), set()
    for _ in range(span // MINUTE):
        await cluster.run_for(MINUTE)
        found = cluster.world.get(VPAS, StoreKey("default", "web"))
        statuses.add(found and found["metadata"]["resourceVersion"])
        kept = cluster.world.get(CHECKPOINTS, StoreKey("default", "web-main"))
        stored.add(kept and kept["metadata"]["resourceVersion"])
    return len(statuses) - 1, len(stored) - 1


def _steady(cluster: SimCluster) -> None:
    cluster.set_usage("default", "web", cpu="400m", memory="300Mi")


@pytest.mark.parametrize(
    ("settings", "statuses", "checkpoints"),
    [
        pytest.param(USUAL, (5, 7), (2, 4), id="once-per-interval"),
        pytest.param(EVERY_LOOP, (59, 60), (59, 60), id="without-intervals-in-every-loop"),
        pytest.param(replace(USUAL, upstream_behavior=True), (59, 60), (59, 60), id="upstream-in-every-loop"),
    ],
)
def test_bounds_that_move_a_little_are_written_once_per_interval(
    settings: RecommenderSettings, statuses: tuple[int, int], checkpoints: tuple[int, int]
) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="512Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        _steady(cluster)
        async with recommender(cluster, settings):
            # By now ten minutes move no bound by a hundredth.
            await cluster.run_for(6 * HOUR)
            wrote = await _versions(cluster, HOUR)
        assert statuses[0] <= wrote[0] <= statuses[1]
        assert checkpoints[0] <= wrote[1] <= checkpoints[1]

    run(main, nodes=2)


def test_a_condition_does_not_wait() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="512Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        _steady(cluster)
        async with recommender(cluster, USUAL):
            await cluster.run_for(6 * HOUR)
            await cluster.client().delete(scheme.DEPLOYMENTS, "web", namespace="default")
            await cluster.run_for(2 * MINUTE)
            assert condition(cluster, "default", "web", "ConfigUnsupported")["status"] == "True"

    run(main, nodes=2)


def test_a_write_that_fails_is_tried_in_the_next_loop() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="512Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        _steady(cluster)
        async with recommender(cluster, USUAL) as running:
            await cluster.run_for(6 * HOUR)
            cluster.api.faults = Faults(errors={"patch": 1.0}, resources=frozenset({"verticalpodautoscalers"}))
            await cluster.run_for(25 * MINUTE)
            state = running.recommender.model.vpas[WEB]
            late = state.waits_since
            assert late is not None
            assert cluster.clock.now() - late > 10 * MINUTE
            cluster.api.faults = Faults()
            await cluster.run_for(2 * MINUTE)
            assert state.waits_since is None or state.waits_since > late

    run(main, nodes=2)


def _amounts(running: RunningRecommender) -> dict[tuple[str, str, str], float]:
    found = running.recommender.model.vpas[WEB].recommendation
    assert found
    return {
        (one.container, bound, resource): float(amount)
        for one in found
        for bound, listed in (("target", one.target), ("lower", one.lower), ("upper", one.upper))
        for resource, amount in (listed or {}).items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_at_any_moment_moves_no_recommendation_by_more_than_a_hundredth(seed: int) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        rng = Random(seed)
        async with recommender(cluster) as running:
            await cluster.run_for(timedelta(hours=rng.uniform(1, 12)))
            before: dict[tuple[str, str, str], float] | None = _amounts(running)
        compared = 0
        for number in range(20):
            async with recommender(cluster, seed=number) as running:
                # Without new usage the first loop recommends what the checkpoints lead to.
                with cluster.outage("metrics"):
                    await cluster.run_for(timedelta(seconds=61))
                assert running.recommender.ready()
                for key, amount in _amounts(running).items():
                    assert before is None or abs(amount / before[key] - 1) <= LITTLE + 0.001, (number, key)
                compared += before is not None
                await cluster.run_for(timedelta(minutes=rng.uniform(0, 45)))
                # What the last loop has saved is not lost, only rounded to a ten-thousandth of the largest weight:
                # on the edge of a bucket a percentile then falls into the one below.
                saved = running.recommender.model.vpas[WEB].checkpoint_written
                fresh = saved is not None and cluster.clock.now() - saved < MINUTE
                before = None if fresh else _amounts(running)
        assert compared > 5

    run(main, scenario=NOISY)


def test_a_checkpoint_is_written_at_once_when_an_amount_jumps() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="512Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        _steady(cluster)
        async with recommender(cluster, USUAL):
            await cluster.run_for(6 * HOUR)
            cluster.set_usage("default", "web", cpu="400m", memory="3Gi")
            await cluster.run_for(3 * MINUTE)
            stored = checkpoint(cluster, "default", "web-main")
            assert stored is not None
            # The peak belongs to an open window, which rides along in the annotation.
            windows = json.loads(stored["metadata"]["annotations"]["kubetide.io/open-windows"])["windows"]
            assert [window[3] >= 3 * 2**30 for window in windows] == [True, True]

    run(main, nodes=2)
