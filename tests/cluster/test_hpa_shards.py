"""Several controllers, each for the namespaces of its shard."""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from kubetide.api.objects.scheme import HPAS
from kubetide.api.values.shard_selector import NAMESPACE, UID, shard_of
from kubetide.config import load
from kubetide.embedded.apiserver.gates import DEFAULT_GATES, SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings, ShardBy
from kubetide.kube.cache.informer import Informer
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def test_a_controller_looks_after_the_namespaces_of_its_shard() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.metrics.set_external_metric("", "queue", 40.0)
        for namespace in ("shop", "b"):
            await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await cluster.apply(make_deployment("web", namespace, replicas=2, cpu="10m", memory="16Mi"))
            await cluster.apply(make_hpa("web", namespace, maximum=8, metrics=[QUEUE]))
        assert shard_of(0, 2, NAMESPACE).matches("", "shop")
        assert shard_of(1, 2, NAMESPACE).matches("", "b")
        async with autoscaler(cluster, HpaSettings(shard="0/2")) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert (running.replicas("shop", "web"), running.replicas("b", "web")) == (4, 2)
            async with autoscaler(cluster, HpaSettings(shard="1/2")) as other:
                await cluster.run_for(timedelta(minutes=1))
                assert (other.replicas("shop", "web"), other.replicas("b", "web")) == (4, 4)

    run(main, nodes=1)


@pytest.mark.parametrize(
    ("gates", "filters"),
    [
        pytest.param(frozenset({SHARDED_LIST_AND_WATCH}), True, id="server-filters"),
        pytest.param(frozenset(), False, id="server-ignores-the-selector"),
    ],
)
def test_a_shard_is_asked_for_and_kept_whatever_the_server_does(gates: frozenset[str], filters: bool) -> None:
    async def main() -> None:
        async with SimCluster(api=ApiServer(clock=virtual_clock(), gates=DEFAULT_GATES | gates)) as cluster:
            cluster.add_node("node-1")
            cluster.metrics.set_external_metric("", "queue", 40.0)
            for namespace in ("shop", "b"):
                await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
                await cluster.apply(make_deployment("web", namespace, replicas=2, cpu="10m", memory="16Mi"))
                await cluster.apply(make_hpa("web", namespace, maximum=8, metrics=[QUEUE]))
            informer = Informer(
                cluster.client(), HPAS, clock=cluster.clock, shard=shard_of(0, 2, NAMESPACE), rng=Random(1)
            )
            settings = HpaSettings(shard="0/2", scale_watch_from=1)
            async with autoscaler(cluster, settings) as running, asyncio.TaskGroup() as group:
                following = group.create_task(informer.run())
                await cluster.run_for(timedelta(minutes=12))
                following.cancel()
                assert [key.namespace for key in informer.store.keys()] == ["shop"]  # noqa: SIM118 - no dict
                assert (informer.server_shards, informer.relists) == (filters, 1)
                assert (running.replicas("shop", "web"), running.replicas("b", "web")) == (4, 2)
                told = running.controller.notes()
                assert any("does not filter by shard" in note for note in told) is not filters
                page = (await cluster.client().request("GET", "/metrics")).body.decode()
                watches = 'apiserver_watch_shards_total{group="",resource="pods"} 1'
                assert (watches in page) is filters
                spared = 'apiserver_watch_filtered_events_total{group="autoscaling"'
                await cluster.apply(make_hpa("web", "b", maximum=9, metrics=[QUEUE]))
                await cluster.run_for(timedelta(minutes=1))
                page = (await cluster.client().request("GET", "/metrics")).body.decode()
                assert (spared in page) is filters

    run_virtual(main(), start=DEFAULT_START, limit=timedelta(days=1))


@pytest.mark.parametrize("scale_watch_from", [0, 1], ids=["scales-are-read", "scales-are-watched"])
def test_autoscalers_of_one_namespace_are_shared_out_by_uid_with_all_their_pods(scale_watch_from: int) -> None:
    names = [f"web-{number}" for number in range(6)]

    async def main(cluster: SimCluster) -> None:
        cluster.metrics.set_external_metric("", "queue", 40.0)
        uids = {}
        for name in names:
            await cluster.apply(make_deployment(name, replicas=2, cpu="10m", memory="16Mi"))
            (made,) = await cluster.apply(make_hpa(name, target=name, maximum=8, metrics=[QUEUE]))
            uids[name] = made["metadata"]["uid"]
        first = {name for name, uid in uids.items() if shard_of(0, 2, UID).matches(uid, "default")}
        assert first
        assert first != set(names)
        one, other = (
            HpaSettings(shard=f"{index}/2", shard_by=ShardBy.UID, scale_watch_from=scale_watch_from) for index in (0, 1)
        )
        assert one.lease_name == "kubetide-hpa-uid-0-of-2"
        async with autoscaler(cluster, one) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert {name for name in names if running.replicas("default", name) == 4} == first
            async with autoscaler(cluster, other):
                await cluster.run_for(timedelta(minutes=1))
                assert [running.replicas("default", name) for name in names] == [4] * 6

    run(main, nodes=1)


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "0/0", "-1/2"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="hpa-shard"):
        load(HpaSettings, flags={"hpa-shard": text})
