"""The metrics APIs of the simulated cluster, and a cluster that goes on where it was stopped."""

import json
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ObjectStore
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.errors import NotFound
from kubetide.kube.metrics import ResourceMetrics
from kubetide.testing.builders import make_deployment
from simulated.cluster import deployment, pods, ready_pods, run

MINUTE = timedelta(minutes=1)
USAGE = "/apis/metrics.k8s.io/v1beta1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"


async def values(cluster: SimCluster, path: str, **query: str) -> list[str]:
    response = await cluster.client().request("GET", path, query=query)
    return [item["value"] for item in json.loads(response.body)["items"]]


def test_requests_and_latency_of_pods_are_custom_metrics() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=4, cpu_limit="1"))
        cluster.set_load("default", "web", 100)
        await cluster.run_for(MINUTE)
        rates = await values(cluster, f"{CUSTOM}/pods/*/http_requests_per_second", labelSelector="app=web")
        assert len(rates) == 4
        assert sum(int(rate.removesuffix("m")) for rate in rates) == pytest.approx(100_000, rel=0.01)
        latency = await values(cluster, f"{CUSTOM}/pods/*/http_request_duration_seconds")
        assert all(12 <= int(each.removesuffix("m")) <= 15 for each in latency)
        assert await values(cluster, f"{CUSTOM}/deployments.apps/web/http_requests_per_second") == ["100"]

    run(main, nodes=1)


def test_values_can_be_set_by_hand() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.metrics.set_object_metric("services", "default", "web", "queue", 7.5)
        assert await values(cluster, f"{CUSTOM}/services/web/queue") == ["7500m"]
        with pytest.raises(NotFound):
            await values(cluster, f"{CUSTOM}/services/web/nothing")
        cluster.metrics.set_external_metric("default", "jobs", 3, {"queue": "a"})
        cluster.metrics.set_external_metric("default", "jobs", 4, {"queue": "b"})
        cluster.metrics.set_external_metric("default", "jobs", Step(((60, 9),), initial=5), {"queue": "b"})
        assert await values(cluster, f"{EXTERNAL}/jobs") == ["3", "5"]
        await cluster.run_for(2 * MINUTE)
        assert await values(cluster, f"{EXTERNAL}/jobs", labelSelector="queue=b") == ["9"]

    run(main, nodes=1)


def test_a_scrape_is_served_after_its_delay_and_until_the_next() -> None:
    scenario = "metrics: {interval: 30s, delay: 10s}\nnodes: [{name: node}]\nworkloads: [{name: web, cpu: 100m}]"

    async def main(cluster: SimCluster) -> None:
        metrics = ResourceMetrics(cluster.client())
        await cluster.run_for(timedelta(seconds=69))
        assert await metrics.pods("default") == ()
        await cluster.run_for(timedelta(seconds=2))
        (first,) = await metrics.pods("default")
        assert first.timestamp is not None
        assert (first.timestamp - cluster.scenario.start).total_seconds() == 60
        await cluster.run_for(timedelta(seconds=28))
        assert (await metrics.pods("default"))[0].timestamp == first.timestamp
        await cluster.run_for(timedelta(seconds=2))
        assert (await metrics.pods("default"))[0].timestamp != first.timestamp

    run(main, scenario=scenario)


def two_containers(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    containers = [{"name": each, "image": "app"} for each in ("app", "side")]
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def test_a_list_names_every_container_of_every_namespace_and_says_what_its_labels_say() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.ensure_namespace("shop")
        cluster.api.insert(two_containers("b", "shop", share="50%d"))
        cluster.api.insert(two_containers("a", "default"))
        cluster.set_usage("shop", "b", cpu="100m", memory="1Gi")
        await cluster.run_for(MINUTE)
        listed = json.loads((await cluster.client().request("GET", f"{USAGE}/pods")).body)["items"]
        assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in listed] == [
            ("default", "a"),
            ("shop", "b"),
        ]
        assert listed[1]["metadata"]["labels"] == {"share": "50%d"}
        assert listed[1].keys() == {"metadata", "timestamp", "window", "containers"}
        usages = [(each["name"], each["usage"]["cpu"], each["usage"]["memory"]) for each in listed[1]["containers"]]
        assert usages == [("app", "100000000n", "1056768Ki"), ("side", "5000000n", "73728Ki")]
        of_shop = json.loads((await cluster.client().request("GET", f"{USAGE}/namespaces/shop/pods")).body)["items"]
        assert of_shop == listed[1:]

    run(main, nodes=1)


def test_a_new_pod_is_listed_once_it_was_scraped_twice() -> None:
    async def main(cluster: SimCluster) -> None:
        metrics = ResourceMetrics(cluster.client())
        await cluster.apply(make_deployment("web", replicas=1))
        await cluster.run_for(MINUTE)
        await cluster.apply(make_deployment("api", replicas=1))
        seen = set()
        for _ in range(12):
            await cluster.run_for(timedelta(seconds=5))
            seen.add(tuple(each.metadata.name[:3] for each in await metrics.pods("default")))
        assert seen == {("web",), ("api", "web")}

    run(main, nodes=1)


def test_a_cluster_goes_on_where_it_was_stopped() -> None:
    scenario = parse_scenario("nodes: [{name: node, count: 2}]\nworkloads: [{name: web, replicas: 2}]")
    kept = ObjectStore()

    async def first() -> set[str]:
        async with SimCluster(scenario) as cluster:
            await cluster.run_for(MINUTE)
            await cluster.apply(make_deployment("web", replicas=4))
            await cluster.run_for(MINUTE)
            store = cluster.api.store
            for resource in store.resources():
                for entry in store.collection(resource).entries():
                    kept.restore(resource, entry.key, entry.copy(), entry.revision)
            kept.revision = store.revision
            return {pod["metadata"]["name"] for pod in ready_pods(cluster)}

    async def second() -> set[str]:
        async with SimCluster(scenario, api=ApiServer(clock=virtual_clock(), store=kept)) as cluster:
            await cluster.run_for(MINUTE)
            assert deployment(cluster, "default", "web")["spec"]["replicas"] == 4
            assert len(pods(cluster)) == 4
            assert all(host.read("/proc/stat") for host in cluster.hosts.values())
            assert len(cluster.kubelets.runs()) == 4
            return {pod["metadata"]["name"] for pod in ready_pods(cluster)}

    before = run_virtual(first())
    assert len(before) == 4
    assert run_virtual(second()) == before
