"""Replicas of the SLO controller that share the nodes, by the hash of their names."""

import json
from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import NODE_METRICS, NODE_SLOS, NODES
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.kube.control.core.ranges import RANGES, ShardMode
from kubetide.slo.controller import SloController
from kubetide.slo.settings import SloSettings
from kubetide.testing.builders import make_config_map
from simulated.replicas import Replicas, drill
from simulated.updating import install_crds

AUTO = SloSettings(shards=ShardMode.AUTO)
NODE_NAMES = [f"{number}-node" for number in range(10)]
ALL_NODES = {"node-1", *NODE_NAMES}


async def configure(cluster: SimCluster, seconds: int) -> None:
    config = json.dumps({"enable": True, "metricReportIntervalSeconds": seconds})
    await cluster.apply(make_config_map("slo-controller-config", "koordinator-system", {"colocation-config": config}))


async def prepare(cluster: SimCluster) -> None:
    for name in NODE_NAMES:
        cluster.add_node(name)
    await install_crds(cluster)
    await cluster.ensure_namespace("koordinator-system")
    await configure(cluster, 60)


async def intervals(cluster: SimCluster) -> dict[str, int]:
    """Return how often each node is told to report."""
    found = {}
    for item in (await cluster.client().list(NODE_METRICS)).items:
        policy = item.spec.metric_collect_policy
        assert policy is not None
        found[item.metadata.name] = policy.report_interval_seconds or 0
    return found


async def slos(cluster: SimCluster) -> set[str]:
    return {item.metadata.name for item in (await cluster.client().list(NODE_SLOS)).items}


def test_each_node_has_one_owner_that_reads_the_objects_of_its_nodes_only() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        await prepare(cluster)
        for _ in range(3):
            await replicas.start()
        await cluster.run_for(timedelta(seconds=30))
        assert sum(one.ranges for one in replicas.all) == RANGES
        assert await slos(cluster) == ALL_NODES
        assert await intervals(cluster) == dict.fromkeys(ALL_NODES, 60)
        held = [one.running.counted("kubetide_informer_objects", resource="nodes") for one in replicas.all]
        assert sum(held) == len(ALL_NODES)
        told = [one.running.controller.explain("node", "node-1") for one in replicas.all]
        assert sum(answer is not None for answer in told) == 1
        assert "ranges of nodes, with 3 members" in replicas.all[0].running.controller.notes()[0]

    drill(main, SloController, AUTO)


def test_nodes_are_looked_after_while_replicas_come_and_go_and_nothing_of_a_live_node_is_deleted() -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        await prepare(cluster)
        first = await replicas.start()
        await cluster.run_for(timedelta(seconds=10))
        second = await replicas.start()
        await cluster.run_for(timedelta(seconds=10))
        await configure(cluster, 30)
        await cluster.run_for(timedelta(seconds=5))
        assert await intervals(cluster) == dict.fromkeys(ALL_NODES, 30)
        first.stop(kill=True)
        await cluster.run_for(timedelta(seconds=25))
        assert second.ranges == RANGES
        await replicas.start()
        await configure(cluster, 45)
        await cluster.run_for(timedelta(seconds=15))
        assert await intervals(cluster) == dict.fromkeys(ALL_NODES, 45)
        writes = [path for one in replicas.all for path in one.running.requests.writes]
        assert not any(path.startswith("DELETE") for path in writes)
        await cluster.client().delete(NODES, NODE_NAMES[0])
        await cluster.run_for(timedelta(seconds=5))
        assert await slos(cluster) == ALL_NODES - {NODE_NAMES[0]}

    drill(main, SloController, AUTO)


def test_sharing_without_leases_is_refused() -> None:
    with pytest.raises(SettingsError, match="auto and enable-leader-election=false exclude each other"):
        SloSettings(shards=ShardMode.AUTO, leader_elect=False)
