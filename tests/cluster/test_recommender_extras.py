"""What kubetide's recommender can do beyond the original, on the simulated cluster. All of it is off by default."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings
from simulated.cluster import events, pods, run
from simulated.recommending import checkpoint, condition, recommended, recommender, vpa_status

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MIB = 1024 * 1024
LEAK = """
tick: 2m
metrics: {interval: 2m, delay: 0s}
nodes:
- {name: node, cpu: "8", memory: 32Gi}
workloads:
- name: leaky
  replicas: 1
  requests: {cpu: 100m, memory: 256Mi}
  limits: {memory: 256Mi}
  memory: {base: 100Mi, leak-per-hour: 200Mi}
"""


def test_a_vpa_tunes_itself_by_annotation_and_mistakes_are_told() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        cluster.set_usage("default", "web", cpu="400m", memory="300Mi")
        tuned = make_vpa("tuned", target="web")
        tuned["metadata"]["annotations"] = {
            "kubetide.io/margin-fraction": "1.0",
            "kubetide.io/cpu-half-life": "6h",
            "kubetide.io/oom-bump-up-ratio": "zero",
        }
        await cluster.apply([make_vpa("plain", target="web"), tuned])
        async with recommender(cluster, RecommenderSettings(per_vpa_tuning=True)):
            await cluster.run_for(HOUR)
            one, other = recommended(cluster, "default", "plain"), recommended(cluster, "default", "tuned")
            assert abs(other["cpu"] / one["cpu"] - 2.0 / 1.15) < 0.02
            told = events(cluster, reason="InvalidTuning")
            assert [event["involvedObject"]["name"] for event in told] == ["tuned"]
            assert "oom-bump-up-ratio" in told[0]["message"]
        async with recommender(cluster):
            await cluster.run_for(3 * MINUTE)
            assert recommended(cluster, "default", "tuned")["cpu"] == recommended(cluster, "default", "plain")["cpu"]

    run(main, nodes=1)


def test_the_floor_of_a_killed_container_outlives_its_samples_and_a_restart() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Off"))
        settings = RecommenderSettings(oom_floor=True)
        async with recommender(cluster, settings):
            await cluster.wait_for(lambda: _restarts(cluster) >= 1, timeout=6 * HOUR, every=MINUTE)
            await cluster.run_for(5 * MINUTE)
        floor = 356 * MIB
        stored = checkpoint(cluster, "default", "leaky-main")
        assert stored is not None
        kept = int(stored["metadata"]["annotations"]["kubetide.io/oom-floor"].partition("@")[0])
        assert kept >= floor
        # The leak is gone, and days later the percentile has long forgotten it.
        profile = cluster.model.profile_of(("default", "leaky"))
        cluster.set_profile("default", "leaky", replace(profile, leak_per_hour=0.0))
        slow = RecommenderSettings(oom_floor=True, interval=timedelta(minutes=30))
        async with recommender(cluster, slow):
            await cluster.run_for(3 * DAY)
            half_way = recommended(cluster, "default", "leaky")["memory"]
            assert 0.6 * kept < half_way < kept
        async with recommender(cluster, RecommenderSettings(interval=timedelta(minutes=30))):
            await cluster.run_for(2 * HOUR)
            assert recommended(cluster, "default", "leaky")["memory"] < half_way

    run(main, scenario=LEAK)


def _restarts(cluster: SimCluster) -> int:
    return sum(
        status.get("restartCount", 0)
        for pod in pods(cluster)
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def test_an_hpa_on_the_same_resource_is_reported_by_default_and_avoided_when_asked() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply([make_vpa("web", target="web"), make_hpa("web", target="web", maximum=5, cpu_percent=50)])
        async with recommender(cluster, RecommenderSettings(hpa_conflicts=HpaConflicts.IGNORE)):
            await cluster.run_for(5 * MINUTE)
            assert condition(cluster, "default", "web", "HPAConflict") == {}
        async with recommender(cluster, RecommenderSettings()):
            await cluster.run_for(5 * MINUTE)
            assert "HorizontalPodAutoscaler web" in condition(cluster, "default", "web", "HPAConflict")["message"]
            assert set(recommended(cluster, "default", "web")) == {"cpu", "memory"}
        async with recommender(cluster, RecommenderSettings(hpa_conflicts=HpaConflicts.AVOID)) as running:
            await cluster.run_for(5 * MINUTE)
            assert set(recommended(cluster, "default", "web")) == {"memory"}
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            assert explained["leftAlone"] == ["cpu"]

    run(main, nodes=1)


def test_low_confidence_is_said_when_asked() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        settings = RecommenderSettings(
            low_confidence_condition=True,
            confidence_interval_cpu=timedelta(hours=2),
            confidence_interval_memory=timedelta(hours=2),
            interval=timedelta(minutes=5),
        )
        async with recommender(cluster, settings):
            await cluster.run_for(HOUR)
            assert condition(cluster, "default", "web", "LowConfidence")["status"] == "True"
            await cluster.run_for(2 * HOUR)
            assert condition(cluster, "default", "web", "LowConfidence") == {}

    run(main, nodes=1)


class PastUsage:
    """Answers like Prometheus: one pod that used two cores and 2 GiB for eight days."""

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        result: list[dict[str, Any]]
        if path == "/api/v1/query":
            metric = {"kubernetes_namespace": "default", "kubernetes_pod_name": "web-old", "pod_label_app": "web"}
            result = [{"metric": metric, "values": [(float(form["time"]), "1")]}]
        else:
            start, end, step = (int(form[name]) for name in ("start", "end", "step"))
            value = "2.0" if form["query"].startswith("rate") else str(2 * 2**30)
            values = [(float(at), value) for at in range(start, end + 1, step)]
            result = [{"metric": {"namespace": "default", "pod_name": "web-old", "name": "main"}, "values": values}]
        return msgspec.json.encode({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_history_from_prometheus_feeds_the_first_recommendation_and_writes_no_checkpoints() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        settings = RecommenderSettings(storage="prometheus")
        async with recommender(cluster, settings, prometheus=PastUsage()):
            await cluster.run_for(3 * MINUTE)
            found = recommended(cluster, "default", "web")
            assert 2300 <= found["cpu"] < 2600
            assert found["memory"] > 2 * 2**30
            assert checkpoint(cluster, "default", "web-main") is None

    run(main, nodes=1)


def test_the_memory_saver_follows_only_matched_pods() -> None:
    async def main(cluster: SimCluster) -> None:
        for name in ("a", "b"):
            await cluster.apply(make_deployment(name, replicas=2, cpu="50m", memory="64Mi"))
        await cluster.apply(make_vpa("a", target="a"))
        async with recommender(cluster, RecommenderSettings(memory_saver=True)) as running:
            await cluster.run_for(3 * MINUTE)
            assert {pod.labels.labels["app"] for pod in running.recommender.model.pods.values()} == {"a"}
            await cluster.apply(make_vpa("b", target="b"))
            await cluster.run_for(3 * MINUTE)
            assert recommended(cluster, "default", "b") != {}
            assert vpa_status(cluster, "default", "b")["observedGeneration"] == 1

    run(main, nodes=1)
