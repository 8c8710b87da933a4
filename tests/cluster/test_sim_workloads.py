"""Workloads on the simulated cluster: pods come, become ready, roll over and go."""

from datetime import timedelta

import pytest

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import DEPLOYMENTS, PODS, REPLICA_SETS, is_active
from kubetide.kube.metrics import ResourceMetrics
from kubetide.testing.builders import make_deployment, make_pod, make_replica_set, make_replication_controller
from simulated.cluster import deployment, events, pods, ready_pods, run

MINUTE = timedelta(minutes=1)


def test_a_deployment_gets_its_pods_and_reports_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=3, cpu="500m"))
        await cluster.run_for(MINUTE)
        assert len(ready_pods(cluster, "default", app="web")) == 3
        status = deployment(cluster, "default", "web")["status"]
        assert (status["readyReplicas"], status["updatedReplicas"], status["observedGeneration"]) == (3, 3, 1)

    run(main, nodes=2)


def test_scaling_up_and_down_follows_the_spec() -> None:
    async def main(cluster: SimCluster) -> None:
        for replicas in (2, 5, 1, 0):
            await cluster.apply(make_deployment("web", replicas=replicas))
            await cluster.run_for(MINUTE)
            assert len(ready_pods(cluster, "default")) == replicas
            assert deployment(cluster, "default", "web")["status"].get("replicas", 0) == replicas

    run(main, nodes=1)


def test_a_rollout_keeps_within_surge_and_unavailable() -> None:
    async def main(cluster: SimCluster) -> None:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await cluster.apply(make_deployment("web", replicas=4, strategy=rolling))
        await cluster.run_for(MINUTE)
        seen: list[tuple[int, int]] = []

        def watch(old: object, new: object) -> None:
            active = [pod for pod in pods(cluster, "default") if is_active(pod)]
            seen.append((len(active), len(ready_pods(cluster, "default"))))

        cluster.world.on(REPLICA_SETS, watch)
        seen.clear()
        await cluster.apply(make_deployment("web", replicas=4, strategy=rolling, image="sim/app:2"))
        await cluster.run_for(5 * MINUTE)
        images = {pod["spec"]["containers"][0]["image"] for pod in ready_pods(cluster, "default")}
        assert images == {"sim/app:2"}
        assert max(total for total, _ in seen) == 5
        assert min(ready for _, ready in seen) >= 4

    run(main, nodes=1)


def test_recreate_stops_all_before_it_starts_any() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=3, strategy={"type": "Recreate"}))
        await cluster.run_for(MINUTE)
        await cluster.apply(make_deployment("web", replicas=3, strategy={"type": "Recreate"}, image="sim/app:2"))
        mixed = False
        for _ in range(60):
            await cluster.run_for(timedelta(seconds=1))
            mixed |= len({pod["spec"]["containers"][0]["image"] for pod in pods(cluster, "default")}) > 1
        assert not mixed
        assert len(ready_pods(cluster, "default")) == 3

    run(main, nodes=1)


def test_going_back_to_an_old_template_reuses_its_replica_set() -> None:
    async def main(cluster: SimCluster) -> None:
        for image in ("sim/app:1", "sim/app:2", "sim/app:1"):
            await cluster.apply(make_deployment("web", replicas=2, image=image))
            await cluster.run_for(2 * MINUTE)
        assert len(cluster.world.all(REPLICA_SETS)) == 2
        found = cluster.world.get(DEPLOYMENTS, StoreKey("default", "web"))
        assert found is not None
        assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"

    run(main, nodes=1)


def test_a_pod_that_fits_nowhere_waits_with_a_reason_and_runs_once_there_is_room() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("big", cpu="16"))
        await cluster.run_for(MINUTE)
        pod = pods(cluster, "default")[0]
        condition = pod["status"]["conditions"][0]
        assert (pod["status"]["phase"], condition["reason"]) == ("Pending", "Unschedulable")
        assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        assert events(cluster, reason="FailedScheduling")
        cluster.add_node("large", cpu="32")
        await cluster.run_for(MINUTE)
        assert ready_pods(cluster, "default")[0]["spec"]["nodeName"] == "large"

    run(main, nodes=1)


def test_extended_resources_count() -> None:
    async def main(cluster: SimCluster) -> None:
        batch = {"kubernetes.io/batch-cpu": "4000"}
        await cluster.apply(make_deployment("batch", requests=batch, limits=batch))
        await cluster.run_for(MINUTE)
        assert not ready_pods(cluster, "default")
        transport = cluster.transport()
        patch = b'{"status":{"allocatable":{"kubernetes.io/batch-cpu":"6000"}}}'
        await transport.request(
            "PATCH", "/api/v1/nodes/node-1/status", body=patch, content_type="application/merge-patch+json"
        )
        await cluster.run_for(MINUTE)
        assert len(ready_pods(cluster, "default")) == 1

    run(main, nodes=1)


def test_a_leak_ends_in_an_oom_kill_and_a_restart() -> None:
    scenario = """
    nodes: [{name: node}]
    workloads:
    - {name: leaky, limits: {memory: 128Mi}, memory: {base: 64Mi, leak-per-hour: 1Gi}}
    """

    async def main(cluster: SimCluster) -> None:
        await cluster.run_for(timedelta(minutes=5))
        status = pods(cluster, "default")[0]["status"]["containerStatuses"][0]
        assert status["restartCount"] >= 1
        ended = status["lastState"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
        assert events(cluster, reason="OOMKilling")

    run(main, scenario=scenario)


def test_a_dead_container_is_seen_as_terminated_before_it_waits_or_runs_again() -> None:
    scenario = """
    nodes: [{name: node}]
    workloads:
    - {name: greedy, limits: {memory: 128Mi}, memory: {base: 256Mi}}
    """

    async def main(cluster: SimCluster) -> None:
        seen: list[tuple[str, int]] = []

        def watch(old: Raw | None, new: Raw | None) -> None:
            for status in ((new or {}).get("status") or {}).get("containerStatuses") or ():
                now = (next(iter(status["state"])), status["restartCount"])
                if now not in seen[-1:]:
                    seen.append(now)

        cluster.world.on(PODS, watch)
        seen.clear()
        await cluster.run_for(timedelta(minutes=5))
        first = seen.index(("terminated", 0))
        expected = [("terminated", 0), ("running", 1), ("terminated", 1), ("waiting", 1), ("running", 2)]
        assert seen[first : first + len(expected)] == expected

    run(main, scenario=scenario)


def test_usage_reaches_the_metrics_api_with_its_delay() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        cluster.set_load("default", "web", 100)
        metrics = ResourceMetrics(cluster.client())
        await cluster.run_for(timedelta(seconds=10))
        assert await metrics.pods("default") == ()
        await cluster.run_for(MINUTE)
        items = await metrics.pods("default")
        total = sum(float(str((c.usage or {})["cpu"]).rstrip("n")) for item in items for c in item.containers or ())
        assert total / 1e9 == pytest.approx(1.0, abs=0.05)
        with cluster.outage("metrics"), pytest.raises(Exception, match="unable to handle"):
            await metrics.pods("default")

    run(main, nodes=1)


def test_a_deleted_pod_is_given_time_and_replaced() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_replica_set("web", replicas=1))
        await cluster.run_for(MINUTE)
        name = pods(cluster, "default")[0]["metadata"]["name"]
        await cluster.transport().request("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        assert {p["metadata"]["name"] for p in pods(cluster, "default")} >= {name}
        await cluster.run_for(MINUTE)
        names = [pod["metadata"]["name"] for pod in ready_pods(cluster, "default")]
        assert len(names) == 1
        assert name not in names

    run(main, nodes=1)


def test_replication_controllers_and_single_pods_run_too() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([make_replication_controller("old", replicas=2), make_pod("alone")])
        await cluster.run_for(MINUTE)
        assert len(ready_pods(cluster, "default")) == 3

    run(main, nodes=1)


def test_two_runs_of_one_seed_are_the_same_and_another_seed_is_not() -> None:
    scenario = """
    nodes: [{name: node, count: 2}]
    workloads:
    - {name: web, replicas: 3, load: {curve: diurnal, low: 10, high: 50, noise: 0.2}, requests: {cpu: 100m}}
    """

    async def main(cluster: SimCluster) -> str:
        await cluster.run_for(timedelta(minutes=30))
        return repr([cluster.world.all(resource) for resource in cluster.api.store.resources()])

    first, again, other = (
        run(main, scenario=scenario),
        run(main, scenario=scenario),
        run(main, scenario=scenario, seed=9),
    )
    assert first == again
    assert first != other
