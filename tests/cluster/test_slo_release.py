"""Gradual release on a simulated cluster: what a prod pod used comes back over a window, restart or not."""

from typing import Any

from cluster.test_slo_overcommit import SECOND, configure, controller, lent, report
from kubetide.api.objects.scheme import PODS
from kubetide.api.values.quantity import int_value
from kubetide.embedded.sim.cluster import SimCluster
from simulated.cluster import run

WINDOW = 300
SETTINGS: dict[str, Any] = {"enable": True, "resourceDiffThreshold": 0.001, "metricAggregateDurationSeconds": WINDOW}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"koordinator.sh/priority-class": "koord-prod"}},
    "spec": {
        "nodeName": "node-1",
        "containers": [{"name": "c", "image": "web", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
    },
}
USAGE = {
    "name": "web",
    "namespace": "default",
    "priority": "koord-prod",
    "podUsage": {"resources": {"cpu": "2", "memory": "1Gi"}},
}


async def lent_cpu(cluster: SimCluster, seconds: int, pods: list[dict[str, Any]] | None = None) -> list[int]:
    """Let the node report every 15 seconds, and return what it lent after each report."""
    found = []
    for _ in range(seconds // 15):
        await report(cluster, "node-1", cpu="500m", memory="1Gi", pods=pods)
        await cluster.run_for(15 * SECOND)
        found.append(int_value((await lent(cluster))[0]))
    return found


async def occupied(cluster: SimCluster) -> int:
    """Have a prod pod of two cores run and leave, and return what the node lent beside it."""
    await configure(cluster.client(), colocation_config=SETTINGS)
    await cluster.client().create(PODS, POD, namespace="default")
    beside = (await lent_cpu(cluster, 60, [USAGE]))[-1]
    await cluster.client().delete(PODS, "web", namespace="default", grace_period_seconds=0)
    return beside


def test_what_a_pod_used_comes_back_over_one_window() -> None:
    async def main(cluster: SimCluster) -> tuple[int, list[int]]:
        async with controller(cluster, gradual_release=True):
            return await occupied(cluster), await lent_cpu(cluster, WINDOW + 30)

    beside, after = run(main, nodes=1)
    assert after[0] < beside + 300, "the first report without the pod does not release it at once"
    assert after == sorted(after)
    assert after[-1] == beside + 2000


def test_a_restart_in_the_middle_makes_the_release_slower_never_faster() -> None:
    async def main(cluster: SimCluster) -> tuple[int, list[int], list[int]]:
        async with controller(cluster, gradual_release=True):
            beside = await occupied(cluster)
            first = await lent_cpu(cluster, 60)
        async with controller(cluster, gradual_release=True):
            return beside, first, await lent_cpu(cluster, WINDOW + 60)

    beside, first, second = run(main, nodes=1)
    assert beside < first[-1] < beside + 2000 // 2
    assert second == sorted(second)
    assert second[0] < first[-1] + 500
    assert second[-1] == beside + 2000
