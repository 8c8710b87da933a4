"""`kubetide recommend` from the checkpoints of a recommender that runs already."""

from datetime import timedelta
from typing import Any

import pytest

from cluster.test_recommend import ROLLOUT_CRD, made, on_cluster, rolled_out
from kubetide import crds
from kubetide.api.objects.scheme import VPA_CHECKPOINTS
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.recommend.cluster import Selection
from kubetide.recommend.gathering import Sources, gather
from kubetide.recommend.metrics_usage import Watch
from kubetide.testing.builders import make_deployment, make_vpa

BUCKET = 10
END = (1.05 ** (BUCKET + 1) - 1.0) / 0.05
"""Where the bucket ends, in units of the first one."""


async def keep(client: Client, vpa: str, *, samples: int = 9000, **changes: Any) -> None:
    """Store what a recommender learned in nine days: one bucket of each histogram has all the weight."""
    histogram = {"bucketWeights": {str(BUCKET): 10000}, "totalWeight": 1.0}
    status = {
        "firstSampleStart": "2026-01-01T00:00:00Z",
        "lastSampleStart": "2026-01-10T00:00:00Z",
        "lastUpdateTime": "2026-01-10T00:00:00Z",
        "totalSamplesCount": samples,
        "version": "v3",
        "cpuHistogram": {**histogram, "referenceTimestamp": "2026-01-10T00:00:00Z"},
        "memoryHistogram": {**histogram, "referenceTimestamp": "2026-01-11T00:00:00Z"},
    }
    body = {"metadata": {"name": f"{vpa}-main"}, "spec": {"vpaObjectName": vpa, "containerName": "main"}}
    await client.create(VPA_CHECKPOINTS, {**body, "status": status | changes}, namespace="default")


KINDS = [crds.load("verticalpodautoscalers"), crds.load("verticalpodautoscalercheckpoints"), ROLLOUT_CRD]


def test_a_checkpoint_gives_the_target_of_the_recommender() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([make_vpa("web", target="web"), make_vpa("gone", target="gone")])
        for name in ("web", "gone"):
            await keep(client, name)
        (row,) = made(await gather(client, cluster.clock, Selection(), Sources()))
        assert row.recommended is not None
        assert row.recommended.cpu_request_millis == pytest.approx(1000 * 0.01 * END * 1.15, abs=1)
        assert (row.recommended.memory_request_bytes or 0) == 250 * 2**20  # no pod gets less
        assert (row.evidence.source, row.evidence.days, row.evidence.samples) == ("VPA checkpoint", 9.0, 9000)
        assert (row.confidence, row.evidence.with_recommended) == ("medium", None)

    on_cluster([*KINDS, make_deployment("web", cpu="2")], check)


def test_what_a_checkpoint_does_not_know_is_looked_for_in_the_next_source() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([make_vpa(name, target=name) for name in ("web", "empty", "broken")])
        await keep(client, "web")
        await keep(client, "empty", samples=0)
        await keep(client, "broken", version="v9")
        found = await gather(client, cluster.clock, Selection(), Sources(watch=Watch(timedelta(minutes=5))))
        sources = {row.name: row.evidence.source for row in made(found)}
        assert sources == {"web": "VPA checkpoint", "empty": "metrics API", "broken": "metrics API"}
        assert [each for each in found.state.problems if "broken" in each]

    on_cluster([*KINDS, *(make_deployment(name, cpu="2") for name in ("web", "empty", "broken"))], check)


def test_a_vpa_for_a_rollout_is_one_for_the_deployment_that_it_refers_to() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}

    async def check(cluster: SimCluster, client: Client) -> None:
        vpa = make_vpa("canary", target="canary")
        vpa["spec"]["targetRef"] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
        await cluster.apply([rolled_out("canary", {"replicas": 1, "workloadRef": reference}), vpa])
        await keep(client, "canary")
        (row,) = made(await gather(client, cluster.clock, Selection(), Sources()))
        assert (row.kind, row.name, row.evidence.source) == ("Deployment", "web", "VPA checkpoint")

    on_cluster([*KINDS, make_deployment("web", replicas=0, cpu="2")], check)
