"""Controllers that die, come back, or hand over: never an earlier shrink than without."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.errors import Unavailable
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

Raw = dict[str, Any]
Sizes = list[tuple[float, int]]

QUEUE: Raw = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
SLOWLY: Raw = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 600}],
    }
}


def sizes_with_restart(at: float | None, behavior: Raw | None = None) -> Sizes:
    """Follow a queue that empties at 600 s; the controller is killed and started again at `at`."""

    async def main(cluster: SimCluster) -> Sizes:
        await cluster.apply(make_deployment("web", replicas=8, cpu="10m", memory="16Mi"))
        await cluster.apply(make_hpa("web", maximum=20, metrics=[QUEUE], behavior=behavior))
        cluster.metrics.set_external_metric("default", "queue", Step(((0.0, 8.0), (600.0, 2.0))))
        settings = HpaSettings(leader_elect=False)
        await cluster.run_for(timedelta(seconds=5))
        first = timedelta(seconds=at if at is not None else 3000)
        async with autoscaler(cluster, settings) as running:
            sizes = await running.follow(first, "default", "web")
        if at is None:
            return sizes
        async with autoscaler(cluster, settings, seed=1) as running:
            later = await running.follow(timedelta(seconds=3000 - at), "default", "web")
        return sizes + [entry for entry in later if entry[1] != sizes[-1][1]]

    return run(main, nodes=1)


def first_shrink(sizes: Sizes) -> float:
    return next(at for at, size in sizes if size < 8)


@pytest.mark.parametrize("restart", [610, 650, 700, 800, 870])
@pytest.mark.parametrize("behavior", [None, {}], ids=["without-behavior", "with-behavior"])
def test_a_restart_in_the_window_never_shrinks_earlier(restart: float, behavior: Raw | None) -> None:
    plain, restarted = sizes_with_restart(None, behavior), sizes_with_restart(restart, behavior)
    assert [size for _, size in plain] == [8, 2]
    assert [size for _, size in restarted] == [8, 2]
    # Both are jittered by a tenth of a sync period, hence the slack.
    assert first_shrink(restarted) >= first_shrink(plain) - 3
    assert first_shrink(restarted) >= restart + 295


def test_a_restart_does_not_forget_a_recent_rescale() -> None:
    sizes = sizes_with_restart(700, SLOWLY)
    assert [size for _, size in sizes] == [8, 6, 4, 2]
    shrinks = [at for at, _ in sizes[1:]]
    assert all(after - before >= 595 for before, after in pairwise(shrinks))


def test_a_restart_does_not_hold_up_growth() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="10m", memory="16Mi"))
        await cluster.apply(make_hpa("web", maximum=20, metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster):
            await cluster.run_for(timedelta(minutes=3))
        cluster.metrics.set_external_metric("default", "queue", 4.0)
        async with autoscaler(cluster, seed=1) as running:
            await cluster.run_for(timedelta(seconds=25))
            assert running.replicas("default", "web") == 4

    run(main, nodes=1)


def test_of_two_controllers_one_acts_and_the_other_takes_over() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="10m", memory="16Mi"))
        await cluster.apply(make_hpa("web", maximum=20, metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster, seed=1) as first:
            await cluster.run_for(timedelta(seconds=10))
            async with autoscaler(cluster, seed=2) as second:
                await cluster.run_for(timedelta(minutes=1))
                assert (first.controller.leading, second.controller.leading) == (True, False)
                assert first.controller.notes() == ()
                assert second.controller.notes() == ("stands by: does not hold the lease kube-system/kubetide-hpa",)
                assert second.controller.ready()
                assert second.requests.writes == []
                first.requests.interfere = lambda method, path: Unavailable("cut off")
                cluster.metrics.set_external_metric("default", "queue", 6.0)
                await cluster.run_for(timedelta(minutes=1))
                assert second.controller.leading
                assert second.replicas("default", "web") == 6
                lease = cluster.client()
                found = await lease.request(
                    "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubetide-hpa"
                )
                assert b"holderIdentity" in found.body

    run(main, nodes=1)
