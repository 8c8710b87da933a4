"""Following targets instead of reading each scale: the same decisions with fewer requests."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.errors import api_error
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

Raw = dict[str, Any]

TURNS = "horizontal_pod_autoscaler_controller_reconciliations_total"
QUEUE: Raw = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


async def prepare(cluster: SimCluster, count: int = 3) -> None:
    for number in range(count):
        name = f"web-{number}"
        await cluster.apply(make_deployment(name, replicas=2, cpu="10m", memory="16Mi"))
        await cluster.apply(make_hpa(name, target=name, maximum=20, metrics=[QUEUE]))
    steps = ((0.0, 2.0), (300.0, 7.0), (600.0, 3.0))
    cluster.metrics.set_external_metric("default", "queue", Step(steps))


def sizes_with(watch_from: int) -> tuple[list[tuple[float, int]], int, int]:
    async def main(cluster: SimCluster) -> tuple[list[tuple[float, int]], int, int]:
        await prepare(cluster)
        async with autoscaler(cluster, HpaSettings(scale_watch_from=watch_from)) as running:
            sizes = await running.follow(timedelta(minutes=20), "default", "web-1")
            counts = running.requests.counts
            return sizes, counts["scale"], counts["rescale"]

    return run(main, nodes=1)


def test_decisions_are_the_same_and_scales_are_read_only_before_writes() -> None:
    followed, reads, writes = sizes_with(2)
    asked, many_reads, _ = sizes_with(0)
    assert [size for _, size in followed] == [size for _, size in asked] == [2, 4, 7, 3]
    assert all(abs(one - other) < 20 for (one, _), (other, _) in zip(followed, asked, strict=True))
    assert many_reads > 200
    assert reads <= 2 * writes + 6


def test_a_kind_that_few_autoscalers_name_is_not_followed() -> None:
    _, reads, _ = sizes_with(4)
    assert reads > 200


def test_a_size_set_by_hand_is_seen() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster, HpaSettings(scale_watch_from=1)) as running:
            await cluster.run_for(timedelta(minutes=2))
            stored = cluster.world.get(DEPLOYMENTS, StoreKey("default", "web-0"))
            assert stored is not None
            cluster.world.put_spec(DEPLOYMENTS, stored, {**stored["spec"], "replicas": 30})
            sizes = await running.follow(timedelta(seconds=40), "default", "web-0")
            # First to the maximum, at once; then to what the queue asks for.
            assert [size for _, size in sizes] == [30, 20, 2]

    run(main, nodes=1)


def test_a_target_that_is_not_there_is_asked_for() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        await cluster.apply(make_hpa("ghost", target="ghost", metrics=[QUEUE]))
        async with autoscaler(cluster, HpaSettings(scale_watch_from=1)) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.condition("default", "ghost", "AbleToScale") == ("False", "FailedGetScale")

    run(main, nodes=1)


@pytest.mark.parametrize("lost", ["refused", "silent"])
def test_without_a_watch_that_can_be_trusted_each_scale_is_read(lost: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)

        def interfere(method: str, path: str) -> Exception | None:
            if lost == "refused" and path == "/apis/apps/v1/deployments":
                return api_error(403, reason="Forbidden", message="not yours to list")
            return None

        async with autoscaler(cluster, HpaSettings(scale_watch_from=1), interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=1))
            if lost == "silent":
                cluster.api.faults.resources = frozenset({"deployments"})
                cluster.api.faults.frozen = True
                await cluster.run_for(timedelta(minutes=3))
            reads, turns = running.requests.counts["scale"], running.counted(TURNS)
            await cluster.run_for(timedelta(minutes=3))
            assert running.requests.counts["scale"] - reads >= running.counted(TURNS) - turns
            cluster.api.faults.frozen = False
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web-2") == 7

    run(main, nodes=1)
