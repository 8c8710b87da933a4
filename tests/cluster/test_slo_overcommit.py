"""The SLO controller on a simulated cluster: from the ConfigMap to resources on the node."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubetide import crds
from kubetide.api.objects.events import Event
from kubetide.api.objects.scheme import CONFIG_MAPS, NODE_METRICS, NODE_SLOS, NODES
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Conflict
from kubetide.slo.cluster_view import RAW_NODE_SLOS
from kubetide.slo.controller import SloController
from kubetide.slo.node_objects import replaced_spec
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from simulated.cluster import run

CONFIG_NAMESPACE = "koordinator-system"
SECOND = timedelta(seconds=1)
Raw = dict[str, Any]


class Heard:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, event: Event) -> None:
        self.events.append(event)


@asynccontextmanager
async def controller(cluster: SimCluster, heard: Heard | None = None, **settings: Any) -> AsyncIterator[SloController]:
    await cluster.apply(list(crds.load_all()))
    await cluster.ensure_namespace(CONFIG_NAMESPACE)
    made = SloController(
        cluster.client(),
        cluster.clock,
        SloSettings(**settings),
        Telemetry(),
        heard or Heard(),
        random.Random(1),
    )
    task = asyncio.get_running_loop().create_task(made.run())
    try:
        await cluster.run_for(30 * SECOND)
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def configure(client: Client, **keys: Any) -> None:
    data = {name.replace("_", "-"): _text(value) for name, value in keys.items()}
    body = {"metadata": {"name": "slo-controller-config", "namespace": CONFIG_NAMESPACE}, "data": data}
    listing = await client.list(CONFIG_MAPS, namespace=CONFIG_NAMESPACE)
    if any(item.metadata.name == "slo-controller-config" for item in listing.items):
        await client.patch(CONFIG_MAPS, "slo-controller-config", MergePatch({"data": data}), namespace=CONFIG_NAMESPACE)
    else:
        await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **body}, namespace=CONFIG_NAMESPACE)


async def report(cluster: SimCluster, node: str, *, cpu: str, memory: str, pods: list[Raw] | None = None) -> None:
    status = {
        "updateTime": cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
            "systemUsage": {"resources": {"cpu": cpu, "memory": memory}},
        },
        "podsMetric": pods or [],
    }
    await cluster.client().patch(NODE_METRICS, node, MergePatch({"status": status}), subresource="status")


async def lent(cluster: SimCluster, node: str = "node-1") -> tuple[Any, Any]:
    found = (await cluster.client().get(NODES, node)).status.allocatable or {}
    return found.get("kubernetes.io/batch-cpu"), found.get("kubernetes.io/batch-memory")


def test_batch_resources_come_with_the_switch_shrink_with_load_and_go_with_it() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            client = cluster.client()
            await configure(client, colocation_config={"enable": False})
            await cluster.run_for(5 * SECOND)
            assert await lent(cluster) == (None, None)

            await configure(client, colocation_config={"enable": True, "cpuReclaimThresholdPercent": 60})
            await report(cluster, "node-1", cpu="500m", memory="1Gi")
            await cluster.run_for(5 * SECOND)
            before, memory = await lent(cluster)
            # 8 cores, 60 % of them, less what the system uses (the kubelet's reservation, if that is more).
            assert 0 < int(before) <= 8000 * 0.6 - 500
            assert memory is not None

            await report(cluster, "node-1", cpu="3", memory="1Gi")
            await cluster.run_for(5 * SECOND)
            after, _ = await lent(cluster)
            assert int(after) == 8000 * 0.6 - 3000

            await configure(client, colocation_config={"enable": False})
            await cluster.run_for(5 * SECOND)
            assert await lent(cluster) == (None, None)

    run(main, nodes=1)


def test_a_node_that_falls_silent_is_degraded_after_the_configured_minutes() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            await configure(cluster.client(), colocation_config={"enable": True, "degradeTimeMinutes": 5})
            await report(cluster, "node-1", cpu="500m", memory="1Gi")
            await cluster.run_for(timedelta(minutes=4, seconds=50))
            assert (await lent(cluster))[0] is not None
            await cluster.run_for(15 * SECOND)
            assert await lent(cluster) == (None, None)

    run(main, nodes=1)


def test_a_broken_text_changes_nothing_and_reports_why_once() -> None:
    heard = Heard()

    async def main(cluster: SimCluster) -> None:
        async with controller(cluster, heard):
            client = cluster.client()
            await configure(client, colocation_config={"enable": True}, resource_threshold_config="{}")
            await report(cluster, "node-1", cpu="500m", memory="1Gi")
            await cluster.run_for(5 * SECOND)
            good = await lent(cluster)
            await configure(
                client,
                colocation_config='{"enable": "yes"}',
                resource_threshold_config={"clusterStrategy": {"enable": True}},
            )
            await cluster.run_for(5 * SECOND)
            assert await lent(cluster) == good
            slo = await client.get(NODE_SLOS, "node-1")
            assert slo.spec.resource_used_threshold_with_be is not None
            assert slo.spec.resource_used_threshold_with_be.enable is True

    run(main, nodes=1)
    reasons = [event.reason for event in heard.events]
    assert reasons == ["ColocationCfgUnmarshalFailed"]
    assert "colocation-config" in heard.events[0].message


def test_every_node_has_a_nodeslo_and_a_nodemetric_and_both_go_with_it() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            client = cluster.client()
            names = {item.metadata.name for item in (await client.list(NODE_SLOS)).items}
            assert names == {"node-1", "node-2"}
            await client.patch(
                NODE_SLOS,
                "node-1",
                MergePatch({"spec": {"extensions": {"Object": {"theirs": 1}}, "cpuBurstStrategy": {"policy": "auto"}}}),
            )
            await cluster.run_for(5 * SECOND)
            raw = await client.get_raw(NODE_SLOS, "node-1")
            assert raw["spec"]["cpuBurstStrategy"]["policy"] == "none"
            assert raw["spec"]["extensions"] == {"Object": {"theirs": 1}}
            metric = await client.get(NODE_METRICS, "node-2")
            policy = metric.spec.metric_collect_policy
            assert policy is not None
            assert policy.report_interval_seconds == 60
            await client.delete(NODES, "node-2")
            await cluster.run_for(10 * SECOND)
            assert {item.metadata.name for item in (await client.list(NODE_SLOS)).items} == {"node-1"}
            assert {item.metadata.name for item in (await client.list(NODE_METRICS)).items} == {"node-1"}

    run(main, nodes=2)


def test_a_label_chooses_the_node_strategy_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            client = cluster.client()
            selector = {"matchLabels": {"pool": "edge"}}
            entry = {"name": "edge", "nodeSelector": selector, "cpuSuppressPolicy": "cfsQuota"}
            await configure(
                client, resource_threshold_config={"clusterStrategy": {"enable": True}, "nodeStrategies": [entry]}
            )
            await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"pool": "edge"}}}))
            await cluster.run_for(5 * SECOND)
            strategy = (await client.get(NODE_SLOS, "node-1")).spec.resource_used_threshold_with_be
            assert strategy is not None
            assert (strategy.enable, strategy.cpu_suppress_policy) == (True, "cfsQuota")

    run(main, nodes=1)


def test_a_new_spec_leaves_the_metadata_of_a_nodeslo_to_others_and_never_overwrites_a_newer_object() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            client = cluster.client()
            kept = {"finalizers": ["example.com/theirs"], "labels": {"a": "b"}, "annotations": {"c": "d"}}
            await client.patch(
                RAW_NODE_SLOS, "node-1", MergePatch({"metadata": kept, "spec": {"extensions": {"x": 1}}})
            )
            stale = await client.get(RAW_NODE_SLOS, "node-1")
            await configure(client, resource_threshold_config={"clusterStrategy": {"enable": True}})
            await cluster.run_for(5 * SECOND)
            found = await client.get(RAW_NODE_SLOS, "node-1")
            spec = found.spec or {}
            assert spec["resourceUsedThresholdWithBE"]["enable"] is True
            assert spec["extensions"] == {"Object": {"x": 1}}
            assert (found.metadata.labels, found.metadata.annotations) == (kept["labels"], kept["annotations"])
            assert list(found.metadata.finalizers or ()) == kept["finalizers"]
            with pytest.raises(Conflict):
                await client.patch(RAW_NODE_SLOS, "node-1", replaced_spec(stale, {}))
            await client.patch(RAW_NODE_SLOS, "node-1", MergePatch({"metadata": {"finalizers": None}}))

    run(main, nodes=1)


def test_an_idle_cluster_causes_no_writes() -> None:
    async def main(cluster: SimCluster) -> None:
        async with controller(cluster):
            await configure(cluster.client(), colocation_config={"enable": True})
            await report(cluster, "node-1", cpu="500m", memory="1Gi")
            await cluster.run_for(10 * SECOND)
            before = await cluster.client().get(NODES, "node-1")
            for _ in range(12):
                await report(cluster, "node-1", cpu="500m", memory="1Gi")
                await cluster.run_for(timedelta(minutes=1))
            after = await cluster.client().get(NODES, "node-1")
            assert before.status.allocatable == after.status.allocatable
            assert before.metadata.annotations == after.metadata.annotations

    run(main, nodes=1)


def test_explain_reports_the_sum() -> None:
    async def main(cluster: SimCluster) -> Raw | None:
        async with controller(cluster) as made:
            await configure(cluster.client(), colocation_config={"enable": True})
            await report(cluster, "node-1", cpu="500m", memory="1Gi")
            await cluster.run_for(5 * SECOND)
            return made.explain("node", "node-1")

    trace = run(main, nodes=1)
    assert trace is not None
    assert trace["overcommit"]["sums"]["capacity"]["cpu"] == "8"
    assert trace["overcommit"]["reportAgeSeconds"] < 60


def test_a_bandwidth_annotation_sets_the_nodeslo_and_an_unreadable_one_is_reported_once() -> None:
    async def main(cluster: SimCluster) -> tuple[str, str, list[str]]:
        heard = Heard()
        async with controller(cluster, heard):
            client = cluster.client()
            await configure(client, system_config={"clusterStrategy": {"totalNetworkBandwidth": "1G"}})
            found = []
            for text in ("20G", "fast"):
                body = {"metadata": {"annotations": {"node.koordinator.sh/network-bandwidth": text}}}
                await client.patch(NODES, "node-1", MergePatch(body))
                await cluster.run_for(5 * SECOND)
                spec = (await client.get_raw(NODE_SLOS, "node-1"))["spec"]
                found.append(spec["systemStrategy"]["totalNetworkBandwidth"])
            await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"any": "change"}}}))
            await cluster.run_for(5 * SECOND)
        return found[0], found[1], [event.reason for event in heard.events]

    assert run(main, nodes=1) == ("20G", "1G", ["NetworkBandwidthIgnored"])
