"""The recommender on the simulated cluster, in virtual time."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from kubetide.api.objects import scheme
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.faults import Faults
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import DEPLOYMENTS, PODS
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.loop import recompute
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.cluster import events, run
from simulated.recommending import (
    CHECKPOINTS,
    VPAS,
    checkpoint,
    condition,
    recommended,
    recommender,
    vpa_status,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MIB = 1024 * 1024
COARSE = "tick: 15m\nmetrics: {interval: 15m, delay: 0s}\n"
SLOW = RecommenderSettings(interval=timedelta(minutes=15))


def diurnal(name: str = "web", replicas: int = 2) -> str:
    return f"""
workloads:
- name: {name}
  replicas: {replicas}
  requests: {{cpu: 500m, memory: 256Mi}}
  load: {{curve: diurnal, low: 20, high: 200, peak-hour: 14, noise: 0.1}}
  cpu-per-request: 10m
  memory: {{base: 200Mi, per-request: 1Mi}}
"""


NODES = '\nnodes:\n- {name: node, count: 2, cpu: "8", memory: 32Gi}\n'


def test_eight_days_of_a_diurnal_service_end_in_its_busy_hours() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        daily = []
        async with recommender(cluster, SLOW) as running:
            for _ in range(8):
                await cluster.run_for(DAY)
                daily.append(recommended(cluster, "default", "web"))
            explained = running.recommender.explain("vpa", "default/web")
        # Two pods share at most 200 requests a second at 10 m each; the target is the 90th percentile plus 15 %.
        assert 800 < daily[-1]["cpu"] < 1300
        assert 300 * MIB < daily[-1]["memory"] < 420 * MIB
        assert all(abs(day["cpu"] / daily[-1]["cpu"] - 1) < 0.06 for day in daily[2:])
        lower = recommended(cluster, "default", "web", bound="lowerBound")
        upper = recommended(cluster, "default", "web", bound="upperBound")
        assert lower["cpu"] < daily[-1]["cpu"] < upper["cpu"] < 3 * daily[-1]["cpu"]
        assert explained is not None
        assert explained["containers"][0]["resources"]["cpu"]["bounds"]["target"]["result"] == daily[-1]["cpu"]

    run(main, scenario=COARSE + NODES + diurnal())


def test_a_hundred_restarts_at_random_moments_move_no_recommendation() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        rng = Random(5)
        settings = RecommenderSettings(interval=timedelta(minutes=2))
        bounds = ("target", "lowerBound", "upperBound", "uncappedTarget")
        async with recommender(cluster, settings):
            await cluster.run_for(30 * HOUR)
        for number in range(100):
            before = {bound: recommended(cluster, "default", "web", bound=bound) for bound in bounds}
            async with recommender(cluster, settings, seed=number) as running:
                # The first loop sees no new usage: whatever it recommends, it knows from before the restart.
                with cluster.outage("metrics"):
                    await cluster.run_for(timedelta(seconds=121))
                assert running.recommender.ready()
                for bound, old in before.items():
                    new = recommended(cluster, "default", "web", bound=bound)
                    assert all(abs(new[resource] / old[resource] - 1) < 0.01 for resource in old), (number, bound)
                await cluster.run_for(timedelta(seconds=rng.uniform(0, 1200)))

    run(main, scenario="tick: 1m\nmetrics: {interval: 1m, delay: 0s}\n" + NODES + diurnal())


def test_a_target_that_comes_and_goes_keeps_its_history() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="400m", memory="300Mi")
        async with recommender(cluster):
            await cluster.run_for(3 * HOUR)
            before = recommended(cluster, "default", "web")
            stored = _samples(cluster, "web-main")
            for _ in range(3):
                await _retarget(cluster, "missing")
                await cluster.run_for(5 * MINUTE)
                assert condition(cluster, "default", "web", "ConfigUnsupported")["status"] == "True"
                assert recommended(cluster, "default", "web") == before
                assert _samples(cluster, "web-main") >= stored
                await _retarget(cluster, "web")
                await cluster.run_for(5 * MINUTE)
                assert condition(cluster, "default", "web", "ConfigUnsupported") == {}
                assert recommended(cluster, "default", "web")["memory"] == before["memory"]
            assert _samples(cluster, "web-main") >= stored
            assert _samples(cluster, "web-main") < 2 * stored + 100

    run(main, nodes=2)


def _samples(cluster: SimCluster, name: str) -> int:
    found = checkpoint(cluster, "default", name)
    assert found is not None
    return int(found["status"]["totalSamplesCount"])


async def _retarget(cluster: SimCluster, target: str) -> None:
    change = {"spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}}
    await cluster.client().patch(scheme.VPAS, "web", MergePatch(change), namespace="default")


def test_a_server_that_is_down_at_the_start_costs_time_and_nothing_else() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="400m", memory="300Mi")
        async with recommender(cluster):
            await cluster.run_for(3 * HOUR)
        before, stored = vpa_status(cluster, "default", "web"), checkpoint(cluster, "default", "web-main")
        cluster.api.faults = Faults(errors={"*": 1.0})
        async with recommender(cluster) as running:
            await cluster.run_for(30 * MINUTE)
            assert not running.recommender.ready()
            # Everything answers again, except checkpoints: what is stored is still unknown.
            cluster.api.faults = Faults(errors={"*": 1.0}, resources=frozenset({"verticalpodautoscalercheckpoints"}))
            await cluster.run_for(10 * MINUTE)
            assert vpa_status(cluster, "default", "web") == before
            assert checkpoint(cluster, "default", "web-main") == stored
            cluster.api.faults = Faults()
            await cluster.run_for(5 * MINUTE)
            assert recommended(cluster, "default", "web")["memory"] >= 300 * MIB
            assert _samples(cluster, "web-main") > stored["status"]["totalSamplesCount"] if stored else False

    run(main, nodes=2)


def test_a_checkpoint_that_cannot_be_read_is_kept_and_reported() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        broken = {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": {"name": "web-main", "namespace": "default"},
            "spec": {"vpaObjectName": "web", "containerName": "main"},
            "status": {"version": "v3", "cpuHistogram": {"bucketWeights": {"9999": 5}, "totalWeight": 3.0}},
        }
        await cluster.apply(broken)
        async with recommender(cluster):
            await cluster.run_for(15 * MINUTE)
            kept = checkpoint(cluster, "default", "web-main")
            assert kept is not None
            assert kept["status"] == broken["status"]
            assert [event["involvedObject"]["name"] for event in events(cluster, reason="UnreadableCheckpoint")] == [
                "web"
            ]
            assert recommended(cluster, "default", "web") != {}

    run(main, nodes=1)


def test_conditions_tell_what_is_missing_and_others_are_kept() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("lonely", target="nobody"))
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        await cluster.run_for(MINUTE)
        replica_set = next(pod["metadata"]["ownerReferences"][0]["name"] for pod in cluster.world.all(PODS, "default"))
        await cluster.apply(make_vpa("middle", target=replica_set, kind="ReplicaSet"))
        paused = {
            "type": "UpdatesPaused",
            "status": "True",
            "reason": "X",
            "lastTransitionTime": "2026-01-05T00:00:00Z",
        }
        cluster.world.put(VPAS, _vpa(cluster, "web"), status={"conditions": [paused]})
        async with recommender(cluster):
            await cluster.run_for(5 * MINUTE)
        problem = condition(cluster, "default", "lonely", "ConfigUnsupported")
        assert problem["message"].startswith("Cannot read targetRef. Reason: ")
        assert condition(cluster, "default", "lonely", "NoPodsMatched")["message"] == "No pods match this VPA object"
        assert condition(cluster, "default", "lonely", "RecommendationProvided")["status"] == "False"
        assert condition(cluster, "default", "middle", "ConfigUnsupported")["message"].startswith(
            f"The target apps/v1.ReplicaSet/{replica_set} has a parent controller"
        )
        assert condition(cluster, "default", "web", "UpdatesPaused")["reason"] == "X"
        assert condition(cluster, "default", "web", "RecommendationProvided")["status"] == "True"
        kinds = [one["type"] for one in vpa_status(cluster, "default", "web")["conditions"]]
        assert kinds == sorted(kinds)

    run(main, nodes=1)


def _vpa(cluster: SimCluster, name: str) -> dict[str, Any]:
    found = cluster.world.get(VPAS, StoreKey("default", name))
    assert found is not None
    return found


def test_each_recommender_serves_its_own_vpas_and_checkpoints_of_gone_vpas_are_deleted() -> None:
    async def main(cluster: SimCluster) -> None:
        for name in ("a", "b"):
            await cluster.apply(make_deployment(name, replicas=1, cpu="100m", memory="128Mi"))
        other = make_vpa("b", target="b")
        other["spec"]["recommenders"] = [{"name": "nightly"}]
        await cluster.apply([make_vpa("a", target="a"), other])
        async with recommender(cluster):
            await cluster.run_for(5 * MINUTE)
            assert recommended(cluster, "default", "a") != {}
            assert recommended(cluster, "default", "b") == {}
            async with recommender(cluster, RecommenderSettings(recommender_name="nightly")):
                await cluster.run_for(15 * MINUTE)
                assert recommended(cluster, "default", "b") != {}
                await cluster.client().delete(scheme.VPAS, "b", namespace="default")
                await cluster.run_for(15 * MINUTE)
            names = [one["metadata"]["name"] for one in cluster.world.all(CHECKPOINTS)]
            assert names == ["a-main"]

    run(main, nodes=1)


def test_two_shards_share_the_vpas_of_a_cluster() -> None:
    async def main(cluster: SimCluster) -> None:
        names = [f"app-{i}" for i in range(8)]
        for name in names:
            await cluster.apply(make_deployment(name, replicas=1, cpu="50m", memory="64Mi"))
            await cluster.apply(make_vpa(name, target=name))
        async with (
            recommender(cluster, RecommenderSettings(shard="0/2")) as one,
            recommender(cluster, RecommenderSettings(shard="1/2")) as two,
        ):
            await cluster.run_for(4 * MINUTE)
            mine = {str(key.name) for key in one.recommender.model.vpas}
            yours = {str(key.name) for key in two.recommender.model.vpas}
        assert mine | yours == set(names)
        assert not mine & yours
        assert mine
        assert yours
        assert all(recommended(cluster, "default", name) for name in names)

    run(main, nodes=2)


def test_a_metrics_outage_changes_nothing_and_the_health_check_fails_only_when_the_loop_stalls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        async with recommender(cluster) as running:
            await cluster.run_for(HOUR)
            before = recommended(cluster, "default", "web")
            with cluster.outage("metrics"):
                await cluster.run_for(20 * MINUTE)
                assert recommended(cluster, "default", "web") == before
                assert running.recommender.healthy()
            assert running.counted("vpa_recommender_metric_server_responses_total", is_error="true") >= 15
            assert running.counted("vpa_recommender_execution_latency_seconds_count", step="total") >= 75
            monkeypatch.setattr(running.recommender, "_maintain_checkpoints", asyncio.Event().wait)
            await cluster.run_for(4 * MINUTE)
            assert running.recommender.healthy()
            await cluster.run_for(4 * MINUTE)
            assert not running.recommender.healthy()

    run(main, nodes=1)


def test_a_deployment_scaled_to_zero_keeps_its_recommendation() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="400m", memory="300Mi")
        async with recommender(cluster):
            await cluster.run_for(HOUR)
            before = recommended(cluster, "default", "web")
            found = cluster.world.get(DEPLOYMENTS, StoreKey("default", "web"))
            assert found is not None
            cluster.world.put_spec(DEPLOYMENTS, found, {**found["spec"], "replicas": 0})
            await cluster.run_for(HOUR)
            assert recommended(cluster, "default", "web") == before
            assert condition(cluster, "default", "web", "NoPodsMatched")["status"] == "True"
            assert condition(cluster, "default", "web", "RecommendationProvided")["status"] == "True"

    run(main, nodes=1)


def test_of_two_copies_one_leads_and_the_other_takes_over_what_is_stored() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="400m", memory="300Mi")
        async with recommender(cluster, seed=2, elect=True) as second:
            async with recommender(cluster, seed=1, elect=True) as first:
                await cluster.run_for(HOUR)
                leaders = [one for one in (first, second) if one.recommender.ready()]
                assert len(leaders) == 1
                before, stored = recommended(cluster, "default", "web"), _samples(cluster, "web-main")
            await cluster.run_for(3 * MINUTE)
            assert second.recommender.ready()
            after = recommended(cluster, "default", "web")
            assert all(abs(after[resource] / before[resource] - 1) < 0.01 for resource in before)
            assert stored < _samples(cluster, "web-main") < stored + 10

    run(main, nodes=1)


def test_an_older_recommender_that_holds_its_lease_is_waited_for() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "vpa-recommender", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "old",
                "leaseDurationSeconds": 600,
                "renewTime": cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
            },
        }
        await cluster.apply(lease)
        async with recommender(cluster, elect=True):
            await cluster.run_for(8 * MINUTE)
            assert recommended(cluster, "default", "web") == {}
            await cluster.run_for(5 * MINUTE)
            assert recommended(cluster, "default", "web") != {}

    run(main, nodes=1)


def test_a_recommendation_can_be_recomputed_from_what_is_stored() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        async with recommender(cluster):
            await cluster.run_for(HOUR)
        settings = RecommenderSettings()
        told = await recompute(cluster.client(), cluster.clock, settings, ObjectKey("default", "web"))
        found = recommended(cluster, "default", "web")
        assert told["containers"][0]["resources"]["cpu"]["bounds"]["target"]["result"] == found["cpu"]
        assert told["source"] == "checkpoints"

    run(main, nodes=1)


def test_a_step_that_hangs_is_cut_short_and_the_loop_goes_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        settings = RecommenderSettings(step_timeout=timedelta(seconds=20))
        async with recommender(cluster, settings) as running:
            await cluster.run_for(30 * MINUTE)
            before = recommended(cluster, "default", "web")
            seen = running.counted("vpa_recommender_execution_latency_seconds_count", step="total")
            cluster.api.faults = Faults(latency=HOUR, resources=frozenset({"pods"}))
            await cluster.run_for(10 * MINUTE)
            assert running.counted("vpa_recommender_execution_latency_seconds_count", step="total") >= seen + 8
            assert running.recommender.healthy()
            assert recommended(cluster, "default", "web") == before

    run(main, nodes=1)
