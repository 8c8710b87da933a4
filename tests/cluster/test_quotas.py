"""ResourceQuotas of the embedded cluster: counted, shown, and enforced for new and for growing pods."""

from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import PODS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.admission.quotas import QUOTAS
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.errors import Forbidden
from kubetide.testing.builders import make_deployment, make_pod, make_quota
from simulated.cluster import pods, run

SETTLED = timedelta(seconds=30)


def test_pods_are_made_until_the_quota_is_used_up() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_quota("compute", hard={"requests.cpu": "1", "limits.memory": "10Gi", "pods": "20"}))
        await cluster.apply(
            make_deployment("web", replicas=5, cpu="300m", memory="1Gi", limits={"memory": "2Gi"}),
        )
        await cluster.run_for(SETTLED)
        assert len(pods(cluster, "default")) == 3
        quota = cluster.world.get(QUOTAS, StoreKey("default", "compute"))
        assert quota is not None
        assert quota["status"]["used"] == {"requests.cpu": "900m", "limits.memory": "6Gi", "pods": "3"}

    run(main, nodes=2)


def test_a_refusal_names_the_quota_and_what_is_missing() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_quota("compute", hard={"requests.cpu": "1"}))
        client = cluster.client()
        with pytest.raises(
            Forbidden, match=r"exceeded quota: compute, requested: requests\.cpu=2, used: requests\.cpu=0"
        ):
            await client.create(PODS, make_pod("big", cpu="2"), namespace="default")
        with pytest.raises(Forbidden, match=r"failed quota: compute: must specify requests\.cpu"):
            await client.create(PODS, make_pod("silent"), namespace="default")

    run(main, nodes=1)


def test_a_pod_does_not_grow_in_place_beyond_the_quota() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("web", cpu="500m"))
        await cluster.run_for(SETTLED)
        await cluster.apply(make_quota("compute", hard={"requests.cpu": "1"}))

        async def resize(cpu: str) -> None:
            container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
            patch = MergePatch({"spec": {"containers": [container]}})
            await cluster.client().patch(PODS, "web", patch, namespace="default", subresource="resize")

        await resize("1")
        with pytest.raises(Forbidden, match="exceeded quota"):
            await resize("1500m")
        # What is smaller is taken whatever the quota holds.
        await cluster.apply(make_quota("compute", hard={"requests.cpu": "100m"}))
        await resize("600m")

    run(main, nodes=1)


def test_a_quota_with_scopes_is_kept_and_not_enforced() -> None:
    async def main(cluster: SimCluster) -> None:
        quota = make_quota("compute", hard={"pods": "0"})
        quota["spec"]["scopes"] = ["BestEffort"]
        await cluster.apply(quota)
        await cluster.apply(make_pod("web", cpu="100m"))
        assert len(pods(cluster, "default")) == 1

    run(main, nodes=1)
