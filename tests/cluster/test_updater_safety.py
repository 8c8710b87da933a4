"""What the updater must not do, whatever the recommendation says."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_daemon_set, make_deployment, make_limit_range, make_pdb, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.updater.explain import render
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import pods, ready_pods, run
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)


async def prepare(
    cluster: SimCluster, *, replicas: int = 2, mode: str = "Recreate", usage: str = "64Mi", **given: Any
) -> None:
    await install_crds(cluster)
    await cluster.apply(make_deployment("web", replicas=replicas, **{"cpu": "100m", "memory": "128Mi", **given}))
    await cluster.apply(make_vpa("web", target="web", mode=mode))
    cluster.set_usage("default", "web", cpu="50m", memory=usage)
    await cluster.run_for(MINUTE)


def requests(cluster: SimCluster) -> list[dict[str, str]]:
    return [pod["spec"]["containers"][0]["resources"]["requests"] for pod in ready_pods(cluster)]


def explained(running: Any, cluster: SimCluster) -> str:
    trace = running.updater.explain("pod", f"default/{pods(cluster)[0]['metadata']['name']}")
    assert trace is not None
    return render(trace)


@pytest.mark.parametrize("mode", ["Off", "Initial"])
def test_modes_that_leave_running_pods_alone_are_left_alone(mode: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, mode=mode)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster):
            await cluster.run_for(10 * MINUTE)
        assert seen.evictions == []

    run(main, nodes=1)


def test_a_single_replica_stays_below_the_minimum_and_reports_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, replicas=1)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(10 * MINUTE)
            assert seen.evictions == []
            assert "fewer than the minimum of 2" in explained(running, cluster)

    run(main, nodes=1)


def test_a_disruption_budget_of_the_user_is_honoured() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, replicas=4)
        await cluster.apply(make_pdb("web", labels={"app": "web"}, min_available=4))
        await cluster.run_for(MINUTE)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(10 * MINUTE)
            assert seen.evictions == []
            assert "PodDisruptionBudget" in explained(running, cluster)

    run(main, nodes=1)


def test_memory_is_not_shrunk_below_what_is_in_use_plus_a_fifth() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, memory="1Gi", usage="500Mi")
        await recommend(cluster, "web", {"cpu": "100m", "memory": "300Mi"})
        async with vpa_parts(cluster):
            await cluster.run_for(15 * MINUTE)
            for each in requests(cluster):
                assert 500 * 2**20 * 1.2 <= int(each["memory"]) <= 560 * 2**20 * 1.2
            assert len(requests(cluster)) == 2

    run(main, nodes=1)


def test_memory_is_not_shrunk_while_its_usage_is_unknown() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, memory="1Gi", usage="100Mi")
        await recommend(cluster, "web", {"cpu": "100m", "memory": "300Mi"})
        seen = watch_disruptions(cluster)
        with cluster.outage("metrics"):
            async with vpa_parts(cluster) as running:
                await cluster.run_for(10 * MINUTE)
                assert seen.evictions == []
                assert "usage is unknown" in explained(running, cluster)

    run(main, nodes=1)


def test_no_pod_becomes_larger_than_any_node() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("one", cpu="4", memory="8Gi")
        cluster.add_node("two", cpu="4", memory="8Gi")
        await prepare(cluster)
        await recommend(cluster, "web", {"cpu": "20", "memory": "256Mi"})
        async with vpa_parts(cluster):
            await cluster.run_for(15 * MINUTE)
            assert len(ready_pods(cluster)) == 2
            cpus = {each["cpu"] for each in requests(cluster)}
            assert cpus <= {"100m", "4", "3900m", "3800m"}

    run(main)


def test_a_recommendation_without_any_sample_is_not_acted_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, cpu="500m", memory="512Mi")
        minimum = {"cpu": "25m", "memory": "250Mi"}
        await recommend(cluster, "web", minimum, lower=minimum, upper=minimum)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(10 * MINUTE)
            assert seen.evictions == []
            assert "rests on no known sample" in explained(running, cluster)
            checkpoint = {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscalerCheckpoint",
                "metadata": {"name": "web-main", "namespace": "default"},
                "spec": {"vpaObjectName": "web", "containerName": "main"},
                "status": {"version": "v3", "totalSamplesCount": 3000},
            }
            await cluster.apply(checkpoint)
            await cluster.run_for(10 * MINUTE)
            assert len(seen.evictions) == 2

    run(main, nodes=1)


def test_limit_ranges_cap_what_pods_get() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, cpu_limit="200m", memory_limit="256Mi")
        await cluster.apply(make_limit_range("limits", "default", {"type": "Container", "max": {"cpu": "500m"}}))
        await recommend(cluster, "web", {"cpu": "400m", "memory": "128Mi"})
        async with vpa_parts(cluster):
            await cluster.run_for(10 * MINUTE)
            resources = [pod["spec"]["containers"][0]["resources"] for pod in ready_pods(cluster)]
            assert [r["requests"]["cpu"] for r in resources] == ["250m", "250m"]
            assert [r["limits"]["cpu"] for r in resources] == ["500m", "500m"]

    run(main, nodes=1)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"vpa_object_namespace": "shop"}, id="one-is-chosen"),
        pytest.param({"ignored_vpa_object_namespaces": ("default",)}, id="the-other-is-ignored"),
    ],
)
def test_only_vpas_of_the_chosen_namespace_are_served(chosen: dict[str, Any]) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        for namespace in ("default", "shop"):
            await cluster.apply(make_deployment("web", namespace, replicas=2, cpu="100m", memory="128Mi"))
            await cluster.apply(make_vpa("web", namespace, target="web"))
            cluster.set_usage(namespace, "web", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        await cluster.apply(make_limit_range("limits", "shop", {"type": "Container", "min": {"cpu": "350m"}}))
        for namespace in ("default", "shop"):
            await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"}, namespace=namespace)
        seen = watch_disruptions(cluster)
        settings = UpdaterSettings(**chosen), AdmissionSettings(local_name="vpa", **chosen)
        async with vpa_parts(cluster, *settings):
            await cluster.run_for(10 * MINUTE)
        assert {pod.split("/")[0] for _, pod in seen.evictions} == {"shop"}
        cpu = [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in ready_pods(cluster, "shop")]
        assert cpu == ["350m", "350m"]

    run(main, nodes=1)


def test_workloads_beside_the_webhook_are_served_too() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("dns", "kube-system", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("dns", "kube-system", target="dns"))
        cluster.set_usage("kube-system", "dns", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        await recommend(cluster, "dns", {"cpu": "300m", "memory": "256Mi"}, namespace="kube-system")
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, admission=AdmissionSettings(local_name="vpa", namespace="kube-system")):
            await cluster.run_for(timedelta(hours=2))
        assert len(seen.evictions) == 2
        assert [each["cpu"] for each in requests(cluster)] == ["300m", "300m"]

    run(main, nodes=1)


def test_daemon_sets_are_updated_by_what_is_ready() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_daemon_set("agent", cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("agent", target="agent", kind="DaemonSet"))
        cluster.set_usage("default", "agent", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        await recommend(cluster, "agent", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster):
            await cluster.run_for(10 * MINUTE)
            assert len(seen.evictions) == 3
            assert [each["cpu"] for each in requests(cluster)] == ["300m"] * 3

    run(main, nodes=3)


def test_a_container_that_keeps_running_out_of_memory_is_helped_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, memory="128Mi", memory_limit="128Mi", usage="200Mi")
        await cluster.run_for(3 * MINUTE)
        await recommend(
            cluster,
            "web",
            {"cpu": "100m", "memory": "300Mi"},
            lower={"cpu": "50m", "memory": "100Mi"},
            upper={"cpu": "200m", "memory": "600Mi"},
        )
        async with vpa_parts(cluster):
            await cluster.run_for(15 * MINUTE)
            assert [each["memory"] for each in requests(cluster)] == ["300Mi"] * 2

    run(main, nodes=1)


def test_the_rate_limit_of_upstream_ends_a_loop() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        for number in range(6):
            name = f"web-{number}"
            await cluster.apply(make_deployment(name, replicas=2, cpu="100m", memory="128Mi"))
            await cluster.apply(make_vpa(name, target=name))
            cluster.set_usage("default", name, cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        for number in range(6):
            await recommend(cluster, f"web-{number}", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, UpdaterSettings(eviction_rate_limit=1 / 40)):
            await cluster.run_for(timedelta(minutes=3, seconds=5))
        gaps = [(b - a).total_seconds() for (a, _), (b, _) in zip(seen.evictions, seen.evictions[1:], strict=False)]
        assert len(seen.evictions) in (3, 4)
        assert min(gaps) >= 39.9

    run(main, nodes=1)


def test_workloads_that_may_not_be_touched_do_not_use_up_the_budget_of_others() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        for number in range(8):
            name = f"held-{number}" if number < 7 else "free"
            await cluster.apply(make_deployment(name, replicas=2, cpu="100m", memory="128Mi"))
            await cluster.apply(make_vpa(name, target=name))
            cluster.set_usage("default", name, cpu="50m", memory="64Mi")
            if number < 7:
                await cluster.apply(make_pdb(name, labels={"app": name}, min_available=2))
        await cluster.run_for(MINUTE)
        for number in range(7):
            await recommend(cluster, f"held-{number}", {"cpu": "900m", "memory": "256Mi"})
        await recommend(cluster, "free", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, UpdaterSettings(disruptions_per_minute=2, disruption_burst=1)):
            await cluster.run_for(timedelta(minutes=5))
        assert len(seen.evictions) == 2
        assert all(pod.startswith("default/free-") for _, pod in seen.evictions)

    run(main, nodes=2)
