"""Nodes of the simulated cluster: in-place resize, node faults, placement, and the machine under the node."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.scheme import PODS as POD_RESOURCE
from kubetide.api.values.patch import StrategicMergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import NODES, PODS, condition_of
from kubetide.errors import InvalidInput
from kubetide.testing.builders import make_deployment, make_pod
from simulated.cluster import events, get, pods, ready_pods, run

MINUTE = timedelta(minutes=1)
Raw = dict[str, Any]


async def resize(cluster: SimCluster, name: str, *, requests: Raw, limits: Raw | None = None) -> None:
    resources: Raw = {"requests": requests}
    if limits is not None:
        resources["limits"] = limits
    patch = StrategicMergePatch({"spec": {"containers": [{"name": "main", "resources": resources}]}})
    await cluster.client().patch(POD_RESOURCE, name, patch, namespace="default", subresource="resize")


def resize_state(pod: Raw) -> tuple[str | None, str]:
    conditions = pod["status"]["conditions"]
    reason = next((c.get("reason", "") for c in conditions if c["type"] == "PodResizePending"), "")
    return pod["status"].get("resize"), reason


def test_a_resize_is_in_progress_and_then_in_force() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("web", cpu="500m", memory="256Mi", cpu_limit="500m", memory_limit="256Mi"))
        cluster.set_usage("default", "web", cpu="2")
        await cluster.run_for(MINUTE)
        host = cluster.hosts["node-1"]
        slow = usage_rate(cluster)
        await resize(
            cluster,
            "web",
            requests={"cpu": "1", "memory": "512Mi"},
            limits={"cpu": "1", "memory": "512Mi"},
        )
        pod = get(cluster, PODS, "default", "web")
        assert resize_state(pod)[0] == "InProgress"
        assert condition_of(pod, "PodResizeInProgress") == "True"
        await cluster.run_for(timedelta(seconds=5))
        pod = get(cluster, PODS, "default", "web")
        status = pod["status"]["containerStatuses"][0]
        assert resize_state(pod) == (None, "")
        assert status["allocatedResources"] == {"cpu": "1", "memory": "512Mi"}
        assert status["resources"]["limits"]["memory"] == "512Mi"
        assert status["restartCount"] == 0
        await cluster.run_for(MINUTE)
        assert usage_rate(cluster) == pytest.approx(2 * slow, rel=0.05)
        assert host.read(pod_file(cluster, "web", "memory.max")) == f"{512 * 2**20}\n"

    run(main, nodes=1)


def usage_rate(cluster: SimCluster) -> float:
    """Cores the pod `web` gets at this moment."""
    run_of_web = next(each for each in cluster.kubelets.runs() if each.key.name == "web")
    row = run_of_web.containers[0].row
    assert row is not None
    cluster.kernel.settle()
    return float(cluster.kernel.granted[row])


def pod_file(cluster: SimCluster, name: str, file: str) -> str:
    run_of = next(each for each in cluster.kubelets.runs() if each.key.name == name)
    return f"/sys/fs/cgroup/{run_of.group}/{file}"


def test_a_resize_that_does_not_fit_waits_until_it_does() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([make_pod("web", cpu="3"), make_pod("other", cpu="4")])
        await cluster.run_for(MINUTE)
        await resize(cluster, "web", requests={"cpu": "5"})
        assert resize_state(get(cluster, PODS, "default", "web")) == ("Deferred", "Deferred")
        await cluster.run_for(MINUTE)
        await cluster.transport().request("DELETE", "/api/v1/namespaces/default/pods/other")
        await cluster.run_for(MINUTE)
        pod = get(cluster, PODS, "default", "web")
        assert resize_state(pod) == (None, "")
        assert pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] == "5"

    run(main, nodes=1)


def test_a_resize_larger_than_the_node_is_infeasible() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("web", cpu="1"))
        await cluster.run_for(MINUTE)
        await resize(cluster, "web", requests={"cpu": "100"})
        pod = get(cluster, PODS, "default", "web")
        assert resize_state(pod) == ("Infeasible", "Infeasible")
        assert pod["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "1"}
        assert events(cluster, reason="ResizeInfeasible")

    run(main, nodes=1)


def test_a_resource_that_needs_a_restart_gets_one() -> None:
    async def main(cluster: SimCluster) -> None:
        pod = make_pod("web", memory="256Mi")
        pod["spec"]["containers"][0]["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        await cluster.apply(pod)
        await cluster.run_for(MINUTE)
        await resize(cluster, "web", requests={"memory": "512Mi"})
        await cluster.run_for(MINUTE)
        found = get(cluster, PODS, "default", "web")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 1
        assert len(ready_pods(cluster)) == 1

    run(main, nodes=1)


def test_a_quota_written_on_the_host_slows_the_pod_and_shows_in_its_metrics() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("web", cpu="500m"))
        cluster.set_usage("default", "web", cpu="2")
        await cluster.run_for(2 * MINUTE)
        before = cluster.metrics.pod_metrics("default")[0]["containers"][0]["usage"]["cpu"]
        cluster.hosts["node-1"].write(pod_file(cluster, "web", "cpu.max"), "50000 100000")
        await cluster.run_for(2 * MINUTE)
        after = cluster.metrics.pod_metrics("default")[0]["containers"][0]["usage"]["cpu"]
        assert (before, after) == ("2000000000n", "500000000n")
        assert "nr_throttled 0\n" not in cluster.hosts["node-1"].read(pod_file(cluster, "web", "cpu.stat"))

    run(main, nodes=1)


def test_the_kubelet_lists_the_pods_of_its_node() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=4))
        await cluster.run_for(MINUTE)
        names = [pod["metadata"]["name"] for node in cluster.hosts for pod in cluster.kubelets.pods(node)["items"]]
        assert len(names) == len(set(names)) == 4
        assert cluster.kubelets.pods("node-1")["kind"] == "PodList"

    run(main, nodes=2)


def test_a_node_that_is_down_gets_no_new_pods_and_comes_back() -> None:
    async def main(cluster: SimCluster) -> None:
        with cluster.outage("node/node-1"):
            assert condition_of(get(cluster, NODES, "", "node-1"), "Ready") == "Unknown"
            await cluster.apply(make_deployment("web", replicas=3))
            await cluster.run_for(MINUTE)
            assert {pod["spec"]["nodeName"] for pod in pods(cluster)} == {"node-2"}
        assert condition_of(get(cluster, NODES, "", "node-1"), "Ready") == "True"
        with pytest.raises(InvalidInput, match="moon"):
            cluster.begin_outage("moon")

    run(main, nodes=2)


def test_pods_of_a_node_that_stays_away_are_replaced_and_cleaned_up_when_it_returns() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=4))
        await cluster.run_for(MINUTE)
        lost = {pod["metadata"]["name"] for pod in pods(cluster) if pod["spec"]["nodeName"] == "node-1"}
        assert len(lost) == 2
        with cluster.outage("node/node-1"):
            await cluster.run_for(timedelta(seconds=5))
            assert {pod["metadata"]["name"] for pod in ready_pods(cluster)} == {
                pod["metadata"]["name"] for pod in pods(cluster) if pod["spec"]["nodeName"] == "node-2"
            }
            await cluster.run_for(4 * MINUTE)
            assert len(ready_pods(cluster)) == 2
            await cluster.run_for(2 * MINUTE)
            assert len(ready_pods(cluster)) == 4
            assert lost <= {pod["metadata"]["name"] for pod in pods(cluster)}, "nobody can confirm that they are gone"
        await cluster.run_for(MINUTE)
        assert len(pods(cluster)) == 4
        assert not lost & {pod["metadata"]["name"] for pod in pods(cluster)}
        assert "taints" not in get(cluster, NODES, "", "node-1")["spec"]

    run(main, nodes=2)


def test_a_short_absence_costs_nothing_but_readiness() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.run_for(MINUTE)
        before = {pod["metadata"]["name"] for pod in pods(cluster)}
        with cluster.outage("node/node-1"):
            await cluster.run_for(2 * MINUTE)
            assert ready_pods(cluster) == []
        await cluster.run_for(timedelta(seconds=5))
        assert {pod["metadata"]["name"] for pod in ready_pods(cluster)} == before

    run(main, nodes=1)


def test_events_of_a_scenario_happen_at_their_time() -> None:
    scenario = """
    nodes: [{name: node}]
    workloads: [{name: web, replicas: 1}]
    events:
    - {at: 1m, do: scale, of: default/web, replicas: 3}
    - {at: 3m, do: cordon, of: node}
    - {at: 4m, do: scale, of: default/web, replicas: 4}
    - {at: 6m, do: outage, of: metrics, for: 1m}
    - {at: 8m, do: rollout, of: default/web}
    - {at: 8m, do: uncordon, of: node}
    """

    async def main(cluster: SimCluster) -> None:
        counts = []
        for _ in range(3):
            await cluster.run_for(timedelta(seconds=100))
            counts.append(len(ready_pods(cluster)))
        assert counts == [3, 3, 3]
        before = {pod["metadata"]["name"] for pod in pods(cluster)}
        await cluster.run_for(timedelta(seconds=90))
        down = [cluster.metrics.down]
        await cluster.run_for(4 * MINUTE)
        assert [*down, cluster.metrics.down] == [True, False]
        after = {pod["metadata"]["name"] for pod in ready_pods(cluster)}
        assert len(after) == 4
        assert not after & before

    run(main, scenario=scenario)


def test_pods_missing_from_a_scrape_are_missing_from_the_metrics() -> None:
    scenario = """
    nodes: [{name: node}]
    workloads: [{name: web, replicas: 20}]
    metrics: {gaps: 0.3}
    """

    async def main(cluster: SimCluster) -> list[int]:
        counts = []
        for _ in range(10):
            await cluster.run_for(timedelta(seconds=60))
            counts.append(len(cluster.metrics.pod_metrics("default")))
        return counts

    counts = run(main, scenario=scenario)
    assert 100 < sum(counts) < 180
    assert counts == run(main, scenario=scenario)


def test_a_more_important_pod_makes_room_for_itself() -> None:
    async def main(cluster: SimCluster) -> None:
        urgent = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
        await cluster.apply([urgent, make_pod("small", cpu="4")])
        await cluster.run_for(MINUTE)
        pod = make_pod("big", cpu="6")
        pod["spec"]["priorityClassName"] = "urgent"
        pod["spec"]["priority"] = 1000
        await cluster.apply(pod)
        await cluster.run_for(MINUTE)
        assert [each["metadata"]["name"] for each in ready_pods(cluster)] == ["big"]

    run(main, nodes=1)


def test_disk_use_shows_in_the_io_pressure_of_the_pod_and_its_node() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.run_for(timedelta(minutes=10))
        busy, idle = (cluster.hosts[name].read("/proc/pressure/io") for name in ("busy", "idle"))
        assert busy.splitlines()[0].startswith("some avg10=25.00 ")
        assert idle.splitlines()[0] == "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
        host = cluster.hosts["busy"]
        leaf = next(
            group for group in cluster.kernel.machines[0].tree.root.leaves() if "kubepods" in group.path and group.row
        )
        path = f"/sys/fs/cgroup/{leaf.path}"
        assert host.read(f"{path}/io.pressure").startswith("some avg10=25.00 ")
        host.write(f"{path}/io.max", "8:0 rbps=1048576 wbps=1048576")
        await cluster.run_for(timedelta(minutes=10))
        assert host.read(f"{path}/io.pressure").startswith("some avg10=100.00 ")

    run(main, scenario=WRITERS)


WRITERS = """
nodes:
  - {name: busy, disk: 80Mi, labels: {role: busy}}
  - {name: idle}
workloads:
  - name: writer
    node-selector: {role: busy}
    disk: 15Mi
    disk-per-request: 1Mi
    load: {curve: constant, level: 5}
    imbalance: 0
"""
