"""Usage that cannot be true reaches no recommendation, and what it did to checkpoints before is healed."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from kubetide.api.objects import scheme
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response
from kubetide.stats.instants import microseconds
from kubetide.testing.builders import make_vpa
from kubetide.vpa.recommender.core.oom import Oom
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.autoscaling import Meddler
from simulated.cluster import events, pods, run
from simulated.recommending import CHECKPOINTS, recommended, recommender

Raw = dict[str, Any]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SLOW = RecommenderSettings(interval=timedelta(minutes=15))
REFUSED = "kubetide_recommender_refused_samples_total"
SCENARIO = """
tick: 15m
metrics: {interval: 15m, delay: 0s}
nodes:
- {name: node, count: 2, cpu: "8", memory: 32Gi}
workloads:
- name: web
  replicas: 2
  requests: {cpu: 500m, memory: 256Mi}
  load: {curve: constant, level: 50}
  cpu-per-request: 10m
  memory: {base: 200Mi}
"""


def usage(cluster: SimCluster, used: Raw, *, ahead: timedelta = timedelta(0), times: int = 1) -> Response:
    items = [
        {
            "metadata": {"name": pod["metadata"]["name"], "namespace": "default"},
            "timestamp": (cluster.clock.now() + ahead).isoformat(),
            "window": "1m",
            "containers": [{"name": pod["spec"]["containers"][0]["name"], "usage": used}] * times,
        }
        for pod in pods(cluster)
    ]
    return Response(200, {}, msgspec.json.encode({"metadata": {}, "items": items}))


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        pytest.param(
            lambda c: usage(c, {"cpu": "10m", "memory": "1Gi"}, ahead=400 * DAY), "future", id="dated-next-year"
        ),
        pytest.param(lambda c: usage(c, {"cpu": "1", "memory": "1e308"}), "above_node", id="memory-without-end"),
        pytest.param(lambda c: usage(c, {"cpu": "1", "memory": "33Gi"}), "above_node", id="more-memory-than-the-node"),
        pytest.param(lambda c: usage(c, {"cpu": "9", "memory": "1Gi"}), "above_node", id="more-cpu-than-the-node"),
        pytest.param(
            lambda c: usage(c, {"cpu": "4", "memory": "9Gi"}, times=2), "duplicate_container", id="a-container-twice"
        ),
    ],
)
def test_an_hour_of_usage_that_cannot_be_true_moves_no_recommendation(
    hostile: Callable[[SimCluster], Response], reason: str
) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        meddler = Meddler(cluster.transport())
        client = Client(meddler, clock=cluster.clock, rng=Random(0))
        async with recommender(cluster, SLOW, client=client) as running:
            await cluster.run_for(6 * HOUR)
            before = recommended(cluster, "default", "web")
            meddler.interfere = lambda method, path: hostile(cluster) if "metrics.k8s.io" in path else None
            await cluster.run_for(HOUR)
            meddler.interfere = None
            assert running.counted(REFUSED, reason=reason) >= 6
            assert recommended(cluster, "default", "web") == before
            # What comes afterwards counts again.
            counted = checkpoint_status(cluster)["totalSamplesCount"]
            await cluster.run_for(HOUR)
            assert checkpoint_status(cluster)["totalSamplesCount"] > counted

    run(main, scenario=SCENARIO)


def checkpoint_status(cluster: SimCluster) -> Raw:
    (name,) = [entry.key.name for entry in cluster.api.store.collection(CHECKPOINTS).entries()]
    found = cluster.world.get(CHECKPOINTS, StoreKey("default", name))
    assert found is not None
    return {"name": name, **found["status"]}


def test_a_checkpoint_from_the_future_is_healed_and_told() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        async with recommender(cluster, SLOW):
            await cluster.run_for(12 * HOUR)
            before = recommended(cluster, "default", "web")
        later = (cluster.clock.now() + 400 * DAY).replace(hour=0, minute=0, second=0, microsecond=0)
        ahead = later.isoformat().replace("+00:00", "Z")
        status = {
            "lastSampleStart": ahead,
            "cpuHistogram": {"referenceTimestamp": ahead},
            "memoryHistogram": {"referenceTimestamp": ahead},
        }
        name = checkpoint_status(cluster)["name"]
        await cluster.client().patch(scheme.VPA_CHECKPOINTS, name, MergePatch({"status": status}), namespace="default")
        async with recommender(cluster, SLOW) as running:
            await cluster.run_for(HOUR)
            now = cluster.clock.now()
            (event,) = events(cluster, reason="HealedCheckpoint")
            assert event["involvedObject"]["name"] == "web"
            assert f"Checkpoint {name} lies in the future (lastSampleStart {ahead})" in event["message"]
            assert recommended(cluster, "default", "web") == before
            found = checkpoint_status(cluster)
            assert datetime.fromisoformat(found["lastSampleStart"]) <= now
            assert datetime.fromisoformat(found["cpuHistogram"]["referenceTimestamp"]) <= now + DAY
            assert running.counted(REFUSED) == 0
        async with recommender(cluster, SLOW):
            await cluster.run_for(HOUR)
            # The event is forgotten after an hour, and nothing gave rise to another one.
            assert not events(cluster, reason="HealedCheckpoint")

    run(main, scenario=SCENARIO)


def test_an_oom_kill_dated_in_the_future_counts_as_of_now() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("web", target="web"))
        async with recommender(cluster, SLOW) as running:
            await cluster.run_for(2 * HOUR)
            (raw, *_) = pods(cluster)
            key, now = ObjectKey("default", raw["metadata"]["name"]), cluster.clock.now()
            name = raw["spec"]["containers"][0]["name"]
            kill = Oom(namespace="default", pod=key.name, container=name, at=now + 400 * DAY, memory_bytes=2**30)
            running.recommender._learner._take_oom(kill, now)
            table = running.recommender.model.containers
            row = running.recommender.model.pods[key].containers[name]
            assert max(table.peak[row], table.oom_peak[row]) > 2**30
            assert table.window_end[row] <= microseconds(now + DAY)
            assert table.last_memory[row] <= microseconds(now)

    run(main, scenario=SCENARIO)
