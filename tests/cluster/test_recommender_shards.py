"""Replicas of the recommender that share the VPAs: what one learned the next one goes on with, and nothing is lost."""

from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import LEASES, VPA_CHECKPOINTS, VPAS
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.kube.control.core.ranges import RANGES, ShardMode
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.recommending import checkpoint, recommended
from simulated.replicas import Replica, Replicas, drill
from simulated.vpas import RECOMMENDERS, make_vpas

MINUTE = timedelta(minutes=1)


def samples(cluster: SimCluster, namespace: str) -> int:
    """Return how many samples the checkpoint of a VPA holds."""
    found = checkpoint(cluster, namespace, "web-main")
    return int(found["status"]["totalSamplesCount"]) if found is not None else 0


def model_of(replica: Replica) -> set[str]:
    """Return the namespaces of the VPAs that a replica learns about."""
    recommender = replica.running.controller
    assert isinstance(recommender, Recommender)
    return {key.namespace for key in recommender.model.vpas}


@pytest.mark.parametrize("server_shards", [True, False], ids=["server-filters", "filtered-on-arrival"])
def test_each_vpa_is_recommended_for_by_one_replica(server_shards: bool) -> None:
    async def main(replicas: Replicas) -> None:
        names = await make_vpas(replicas.cluster, 8)
        for _ in range(3):
            await replicas.start()
        await replicas.cluster.run_for(MINUTE)
        assert sum(one.ranges for one in replicas.all) == RANGES
        learned = [model_of(one) for one in replicas.all]
        assert set().union(*learned) == set(names)
        assert sum(map(len, learned)) == len(names)
        assert all(recommended(replicas.cluster, name, "web").get("cpu") for name in names)
        told = [one.running.controller.explain("vpa", f"{names[0]}/web") for one in replicas.all]
        assert sum(answer is not None for answer in told) == 1

    drill(main, Recommender, RECOMMENDERS, server_shards=server_shards)


def test_a_range_is_given_up_with_all_that_was_learned_and_taken_over_from_there() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        names = await make_vpas(cluster, 8)
        first = await replicas.start()
        await cluster.run_for(4 * MINUTE)
        before = {name: samples(cluster, name) for name in names}
        second = await replicas.start()
        await cluster.run_for(timedelta(seconds=30))
        moved = sorted(set(names) - model_of(first))
        assert moved
        # Checkpoints are due every five minutes; what was given up was written at once.
        assert all(samples(cluster, name) > before[name] for name in moved)
        saved = {name: samples(cluster, name) for name in moved}
        await cluster.run_for(6 * MINUTE)
        assert model_of(second) == set(moved)
        assert all(saved[name] < samples(cluster, name) <= saved[name] + 26 for name in moved)
        assert {recommended(cluster, name, "web")["cpu"] for name in moved} == {
            recommended(cluster, name, "web")["cpu"] for name in set(names) - set(moved)
        }

    drill(main, Recommender, RECOMMENDERS)


def test_no_sample_counts_twice_when_a_range_comes_back() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        names = await make_vpas(cluster, 8)
        await replicas.start()
        await cluster.run_for(2 * MINUTE)
        for _ in range(3):
            other = await replicas.start()
            await cluster.run_for(MINUTE)
            other.stop()
            await cluster.run_for(MINUTE)
        await cluster.run_for(5 * MINUTE)
        # 13 minutes with four samples each at most.
        assert all(30 < samples(cluster, name) <= 53 for name in names)

    drill(main, Recommender, RECOMMENDERS)


def test_the_vpas_of_a_replica_that_died_are_taken_over_with_what_it_had_saved() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        names = await make_vpas(cluster, 8)
        first, second = await replicas.start(), await replicas.start()
        await cluster.run_for(6 * MINUTE)
        theirs = model_of(first)
        targets = {name: recommended(cluster, name, "web")["cpu"] for name in theirs}
        first.stop(kill=True)
        await cluster.run_for(timedelta(seconds=20 + 16))
        assert second.ranges == RANGES
        assert model_of(second) == set(names)
        assert {name: recommended(cluster, name, "web")["cpu"] for name in theirs} == targets

    drill(main, Recommender, RECOMMENDERS)


def test_only_the_owner_of_a_namespace_deletes_checkpoints_whose_vpa_is_gone() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        names = await make_vpas(cluster, 8)
        for _ in range(3):
            await replicas.start()
        await cluster.run_for(MINUTE)
        client = cluster.client()
        for name in names[:4]:
            await client.delete(VPAS, "web", namespace=name)
        await cluster.run_for(3 * MINUTE)
        left = await client.list(VPA_CHECKPOINTS)
        assert {item.metadata.namespace for item in left.items} == set(names[4:])
        deleted = [path for one in replicas.all for path in one.running.requests.writes if path.startswith("DELETE")]
        assert len(deleted) == 4

    drill(main, Recommender, RECOMMENDERS)


def test_replicas_wait_until_the_fixed_shards_of_before_are_gone() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        await make_vpas(cluster, 4)
        client = cluster.client()
        stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        spec = {"holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": stamp, "acquireTime": stamp}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "vpa-recommender-lease-1-of-2", "namespace": "kube-system"},
            "spec": spec,
        }
        await client.create(LEASES, body, namespace="kube-system")
        replica = await replicas.start()
        await cluster.run_for(timedelta(seconds=12))
        assert not replica.running.controller.leading
        await cluster.run_for(timedelta(seconds=20))
        assert replica.ranges == RANGES

    drill(main, Recommender, RECOMMENDERS)


@pytest.mark.parametrize(
    ("options", "other"),
    [
        pytest.param({"shard": "0/2"}, "shard", id="a-fixed-shard"),
        pytest.param({"leader_elect": False}, "leader-elect=false", id="no-leases"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(options: dict[str, object], other: str) -> None:
    with pytest.raises(SettingsError, match=f"shards: auto and {other} exclude each other"):
        RecommenderSettings(shards=ShardMode.AUTO, **options).checked()  # type: ignore[arg-type]
