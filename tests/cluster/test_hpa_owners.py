"""Pods selected by owner: pods that only share labels with the target neither add to nor dilute its usage."""

from datetime import timedelta

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.core.annotations import SelectionStrategy
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.transport import Response
from kubetide.testing.builders import make_deployment, make_hpa, make_pod
from simulated.autoscaling import autoscaler
from simulated.cluster import events, pods, run

RPS = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


async def with_strangers(cluster: SimCluster) -> None:
    """Make a deployment whose two pods are twice as busy as they should be, and two idle pods with the same label."""
    await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
    for name in ("idle-0", "idle-1"):
        await cluster.apply(make_pod(name, "default", labels={"app": "web"}, cpu="10m"))
    await cluster.run_for(timedelta(minutes=1))
    for pod in pods(cluster, app="web"):
        name = pod["metadata"]["name"]
        cluster.metrics.set_object_metric("pods", "default", name, "rps", 0.0 if name.startswith("idle") else 20.0)
    await cluster.apply(make_hpa("web", maximum=8, metrics=[RPS]))


@pytest.mark.parametrize(
    ("strategy", "replicas"), [("LabelSelector", 2), ("OwnerReference", 4)], ids=["all-matched", "only-owned"]
)
def test_only_owned_pods_count_where_asked_for(strategy: str, replicas: int) -> None:
    async def main(cluster: SimCluster) -> None:
        await with_strangers(cluster)
        async with autoscaler(cluster, HpaSettings(selection_strategy=SelectionStrategy(strategy))) as running:
            await cluster.run_for(timedelta(seconds=20))
            assert running.replicas("default", "web") == replicas

    run(main, nodes=1)


def test_an_owner_that_cannot_be_read_makes_all_pods_count() -> None:
    async def main(cluster: SimCluster) -> None:
        await with_strangers(cluster)

        def forbid(method: str, path: str) -> Response | None:
            return Response(status=403, headers={}, body=b"{}") if "/replicasets/" in path else None

        settings = HpaSettings(selection_strategy=SelectionStrategy.OWNER_REFERENCE)
        async with autoscaler(cluster, settings, interfere=forbid) as running:
            await cluster.run_for(timedelta(seconds=20))
            assert running.replicas("default", "web") == 2

    run(main, nodes=1)


def test_an_annotation_chooses_for_one_autoscaler_and_the_change_is_an_event() -> None:
    async def main(cluster: SimCluster) -> None:
        await with_strangers(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=20))
            assert running.replicas("default", "web") == 2
            changed = make_hpa("web", maximum=8, metrics=[RPS])
            changed["metadata"]["annotations"] = {"kubetide.io/hpa-selection-strategy": "OwnerReference"}
            await cluster.apply(changed)
            await cluster.run_for(timedelta(seconds=20))
            assert running.replicas("default", "web") == 4
            assert events(cluster, reason="StrategyChanged", name="web")

    run(main, nodes=1)
