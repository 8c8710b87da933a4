"""The other controllers of the simulated cluster: ordered pods, daemons, jobs, budgets, garbage, namespaces."""

from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import PODS as POD_RESOURCE
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINTS,
    JOBS,
    NAMESPACES,
    PDBS,
    PODS,
    PVCS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from kubetide.kube.client.errors import TooManyRequests
from kubetide.testing.builders import (
    make_config_map,
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_pdb,
    make_stateful_set,
)
from simulated.cluster import events, get, pods, ready_pods, run

MINUTE = timedelta(minutes=1)
CONFIG_MAPS = ResourceKey("", "configmaps")


async def delete(cluster: SimCluster, path: str, policy: str = "Background") -> int:
    answer = await cluster.transport().request("DELETE", path, query={"propagationPolicy": policy})
    return answer.status


def test_a_stateful_set_makes_its_pods_in_order_with_their_claims() -> None:
    async def main(cluster: SimCluster) -> None:
        manifest = make_stateful_set("db", replicas=3)
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        manifest["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        await cluster.apply(manifest)
        await cluster.run_for(timedelta(seconds=3))
        assert [pod["metadata"]["name"] for pod in pods(cluster)] == ["db-0"]
        await cluster.run_for(MINUTE)
        assert [pod["metadata"]["name"] for pod in ready_pods(cluster)] == ["db-0", "db-1", "db-2"]
        assert [claim["metadata"]["name"] for claim in cluster.world.all(PVCS)] == [
            "data-db-0", "data-db-1", "data-db-2",
        ]  # fmt: skip
        status = get(cluster, STATEFUL_SETS, "default", "db")["status"]
        assert (status["readyReplicas"], status["updatedReplicas"]) == (3, 3)

    run(main, nodes=1)


def test_a_stateful_set_updates_from_the_last_to_the_first_and_shrinks_from_the_end() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_stateful_set("db", replicas=3))
        await cluster.run_for(MINUTE)
        await cluster.apply(make_stateful_set("db", replicas=3, image="sim/app:2"))
        await cluster.run_for(timedelta(seconds=4))
        assert pods(cluster)[0]["spec"]["containers"][0]["image"] == "sim/app:1"
        await cluster.run_for(2 * MINUTE)
        assert {pod["spec"]["containers"][0]["image"] for pod in ready_pods(cluster)} == {"sim/app:2"}
        await cluster.apply(make_stateful_set("db", replicas=1, image="sim/app:2"))
        await cluster.run_for(MINUTE)
        assert [pod["metadata"]["name"] for pod in pods(cluster)] == ["db-0"]

    run(main, nodes=1)


def test_a_daemon_set_follows_the_nodes() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}])
        await cluster.apply(make_daemon_set("agent"))
        await cluster.run_for(MINUTE)
        assert {pod["spec"]["nodeName"] for pod in ready_pods(cluster)} == {"node-1", "node-2"}
        cluster.add_node("node-3")
        await cluster.run_for(MINUTE)
        assert len(ready_pods(cluster)) == 3
        status = get(cluster, DAEMON_SETS, "default", "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)
        await cluster.apply(make_daemon_set("agent", image="sim/app:2"))
        await cluster.run_for(2 * MINUTE)
        assert {pod["spec"]["containers"][0]["image"] for pod in ready_pods(cluster)} == {"sim/app:2"}

    run(main, nodes=2)


def test_a_job_is_complete_when_its_work_is_done() -> None:
    async def main(cluster: SimCluster) -> None:
        work = {"sim.kubetide.io/work": "30s"}
        await cluster.apply(make_job("report", completions=3, parallelism=2, annotations=work))
        await cluster.run_for(timedelta(seconds=20))
        assert get(cluster, JOBS, "default", "report")["status"]["active"] == 2
        await cluster.run_for(2 * MINUTE)
        status = get(cluster, JOBS, "default", "report")["status"]
        assert status["succeeded"] == 3
        assert status["conditions"][0]["type"] == "Complete"
        assert {pod["status"]["phase"] for pod in pods(cluster)} == {"Succeeded"}

    run(main, nodes=1)


def test_a_job_that_keeps_running_out_of_memory_fails() -> None:
    async def main(cluster: SimCluster) -> None:
        greedy = {"sim.kubetide.io/work": "10m", "sim.kubetide.io/memory": "1Gi"}
        await cluster.apply(make_job("greedy", backoff_limit=1, annotations=greedy, memory_limit="64Mi"))
        await cluster.run_for(2 * MINUTE)
        status = get(cluster, JOBS, "default", "greedy")["status"]
        assert status["failed"] == 2
        assert status["conditions"][0]["reason"] == "BackoffLimitExceeded"

    run(main, nodes=1)


def test_a_finished_job_goes_when_its_time_to_live_is_over() -> None:
    async def main(cluster: SimCluster) -> None:
        job = make_job("short", annotations={"sim.kubetide.io/work": "5s"})
        job["spec"]["ttlSecondsAfterFinished"] = 60
        await cluster.apply(job)
        await cluster.run_for(3 * MINUTE)
        assert cluster.world.all(JOBS) == []
        assert pods(cluster) == []

    run(main, nodes=1)


def test_a_cron_job_runs_on_its_minutes_and_keeps_a_short_history() -> None:
    async def main(cluster: SimCluster) -> None:
        work = {"sim.kubetide.io/work": "5s"}
        await cluster.apply(make_cron_job("nightly", schedule="*/10 * * * *", annotations=work))
        await cluster.run_for(timedelta(hours=1, minutes=1))
        created = events(cluster, reason="SuccessfulCreate", name="nightly")
        assert len(created) == 6
        assert len(cluster.world.all(JOBS)) == 3
        assert get(cluster, CRON_JOBS, "default", "nightly")["status"]["lastScheduleTime"] == "2026-01-05T01:00:00Z"

    run(main, nodes=1)


def test_a_budget_counts_what_may_be_disturbed_and_evictions_spend_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([make_deployment("web", replicas=3), make_pdb(labels={"app": "web"}, min_available=2)])
        await cluster.run_for(MINUTE)
        assert get(cluster, PDBS, "default", "budget")["status"]["disruptionsAllowed"] == 1
        names = [pod["metadata"]["name"] for pod in ready_pods(cluster)]
        client = cluster.client()
        await client.evict(names[0], namespace="default")
        with pytest.raises(TooManyRequests):
            await client.evict(names[1], namespace="default")
        await cluster.run_for(MINUTE)
        assert get(cluster, PDBS, "default", "budget")["status"]["disruptionsAllowed"] == 1
        assert len(ready_pods(cluster)) == 3

    run(main, nodes=1)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleting_a_deployment_takes_everything_it_owns(policy: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.run_for(MINUTE)
        await delete(cluster, "/apis/apps/v1/namespaces/default/deployments/web", policy)
        if policy == "Foreground":
            assert cluster.world.all(DEPLOYMENTS)
        await cluster.run_for(MINUTE)
        assert [cluster.world.all(resource) for resource in (DEPLOYMENTS, REPLICA_SETS, PODS)] == [[], [], []]

    run(main, nodes=1)


def test_orphaning_leaves_the_pods_alone() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.run_for(MINUTE)
        await delete(cluster, "/apis/apps/v1/namespaces/default/deployments/web", "Orphan")
        await cluster.run_for(MINUTE)
        assert cluster.world.all(DEPLOYMENTS) == []
        assert len(ready_pods(cluster)) == 2

    run(main, nodes=1)


def test_a_namespace_is_emptied_before_it_goes() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([make_deployment("web", "shop", replicas=2), make_config_map("settings", "shop")])
        await cluster.run_for(MINUTE)
        assert await delete(cluster, "/api/v1/namespaces/shop") == 200
        await cluster.run_for(MINUTE)
        assert "shop" not in {namespace["metadata"]["name"] for namespace in cluster.world.all(NAMESPACES)}
        assert cluster.world.all(CONFIG_MAPS, "shop") == []
        assert pods(cluster, "shop") == []

    run(main, nodes=1)


def test_a_service_lists_its_ready_pods() -> None:
    async def main(cluster: SimCluster) -> None:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        await cluster.apply([service, make_deployment("web", replicas=2)])
        await cluster.run_for(MINUTE)
        addresses = get(cluster, ENDPOINTS, "default", "web")["subsets"][0]["addresses"]
        assert len({address["ip"] for address in addresses}) == 2

    run(main, nodes=1)


def test_an_informer_client_sees_what_the_simulation_does() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.run_for(MINUTE)
        listing = await cluster.client().list(POD_RESOURCE, namespace="default")
        assert {pod.status.phase for pod in listing.items if pod.status is not None} == {"Running"}

    run(main, nodes=1)
