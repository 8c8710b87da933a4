"""Replicas of the updater that share the pods: no more is disturbed in sum than one process would disturb."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.kube.control.core.ranges import RANGES, ShardMode
from kubetide.kube.control.shards import ShardMembership
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import ready_pods
from simulated.replicas import Replica, Replicas, drill
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)
AUTO = UpdaterSettings(shards=ShardMode.AUTO, disruptions_per_minute=6, disruption_burst=3, interval=MINUTE / 2)


async def workloads(cluster: SimCluster, count: int) -> None:
    """Make namespaces with two pods each that are far too small."""
    for number in range(2, 5):
        cluster.add_node(f"node-{number}")
    await install_crds(cluster)
    names = [f"{number}-shop" for number in range(count)]
    for name in names:
        await cluster.ensure_namespace(name)
        await cluster.apply(make_deployment("web", name, replicas=2, cpu="10m", memory="16Mi"))
        await cluster.apply(make_vpa("web", name, mode="Recreate"))
        cluster.set_usage(name, "web", cpu="5m", memory="8Mi")
    await cluster.run_for(MINUTE)
    for name in names:
        await recommend(cluster, "web", {"cpu": "30m", "memory": "32Mi"}, namespace=name)


def sizes(cluster: SimCluster) -> Counter[str]:
    return Counter(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in ready_pods(cluster))


def slots(replica: Replica) -> int:
    """Return how many slots of the budget a replica has, resting ones included."""
    membership = replica.running.controller._leadership
    assert isinstance(membership, ShardMembership)
    return len(membership._slots_since)


def test_replicas_use_up_one_budget_together_and_leave_no_pod_out() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        await workloads(cluster, 9)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, updaters=0):
            for _ in range(3):
                await replicas.start()
            await cluster.run_for(timedelta(seconds=50))
            assert sum(one.ranges for one in replicas.all) == RANGES
            assert [slots(one) for one in replicas.all] == [1, 1, 1]
            assert not seen.evictions  # nobody knows yet what was done before
            await cluster.run_for(7 * MINUTE)
        assert 3 < seen.most_in_a_minute() <= 6
        assert max(Counter(pod for _, pod in seen.evictions).values()) == 1
        assert sizes(cluster) == {"30m": 18}

    drill(main, Updater, AUTO)


def test_replicas_that_come_and_go_never_exceed_the_budget() -> None:
    async def main(replicas: Replicas) -> None:
        cluster, rng = replicas.cluster, Random(5)
        await workloads(cluster, 16)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, updaters=0):
            for _ in range(2):
                await replicas.start()
            await cluster.run_for(90 * MINUTE / 60)
            for _ in range(4):
                rng.choice(replicas.all).stop(kill=rng.random() < 0.5)
                await replicas.start()
                await cluster.run_for(timedelta(seconds=rng.uniform(60, 100)))
            await cluster.run_for(6 * MINUTE)
        assert 0 < seen.most_in_a_minute() <= 6
        assert max(Counter(pod for _, pod in seen.evictions).values()) == 1
        assert sizes(cluster) == {"30m": 32}

    drill(main, Updater, AUTO)


def test_replicas_take_turns_where_the_budget_cannot_be_divided() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        await workloads(cluster, 6)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, updaters=0):
            for _ in range(2):
                await replicas.start(disruption_burst=1)
            await cluster.run_for(MINUTE)
            assert sorted(slots(one) for one in replicas.all) == [0, 1]
            await cluster.run_for(9 * MINUTE)
        assert seen.most_in_a_minute() <= 6
        assert sizes(cluster) == {"30m": 12}

    drill(main, Updater, AUTO)


def test_sharing_without_leases_is_refused() -> None:
    with pytest.raises(SettingsError, match="shards: auto and leader-elect=false exclude each other"):
        UpdaterSettings(shards=ShardMode.AUTO, leader_elect=False).checked()
