"""Resizes in place: applied without a restart, and evicted instead where the node cannot give it."""

from datetime import timedelta
from typing import Any

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import events, pods, ready_pods, run
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)


async def prepare(cluster: SimCluster, mode: str, *, replicas: int = 3, **resources: Any) -> None:
    await install_crds(cluster)
    given = {"cpu": "100m", "memory": "128Mi", **resources}
    await cluster.apply(make_deployment("web", replicas=replicas, **given))
    await cluster.apply(make_vpa("web", target="web", mode=mode))
    cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
    await cluster.run_for(MINUTE)


def test_pods_are_resized_in_place_without_a_restart() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "InPlaceOrRecreate")
        before = {pod["metadata"]["uid"] for pod in pods(cluster)}
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(8 * MINUTE)
            assert {pod["metadata"]["uid"] for pod in pods(cluster)} == before
            statuses = [pod["status"]["containerStatuses"][0] for pod in ready_pods(cluster)]
            assert [status["resources"]["requests"]["cpu"] for status in statuses] == ["300m"] * 3
            assert [status["restartCount"] for status in statuses] == [0] * 3
            assert (len(seen.resizes), len(seen.evictions)) == (3, 0)
            assert events(cluster, reason="InPlaceResizedByVPA")
            assert all(pod["metadata"]["annotations"]["vpaInPlaceUpdated"] == "true" for pod in pods(cluster))
            trace = running.updater.explain("pod", f"default/{pods(cluster)[0]['metadata']['name']}")
            assert trace is not None
            assert trace["resize"]["phase"] == "Done"

    run(main, nodes=2)


def test_a_resize_that_no_node_has_room_for_falls_back_to_an_eviction() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("small", cpu="1", memory="4Gi")
        await prepare(cluster, "InPlaceOrRecreate", replicas=2, cpu="400m")
        cluster.add_node("large", cpu="16", memory="32Gi")
        await recommend(cluster, "web", {"cpu": "3", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster):
            await cluster.run_for(30 * MINUTE)
            assert len(seen.evictions) == 2
            requests = [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in ready_pods(cluster)]
            assert requests == ["3", "3"]

    run(main)


def test_mode_in_place_never_evicts() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("small", cpu="1", memory="4Gi")
        await prepare(cluster, "InPlace", replicas=2, cpu="400m")
        cluster.add_node("large", cpu="16", memory="32Gi")
        before = {pod["metadata"]["uid"] for pod in pods(cluster)}
        await recommend(cluster, "web", {"cpu": "3", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, UpdaterSettings(feature_gates=("InPlace=true",))):
            await cluster.run_for(30 * MINUTE)
            assert seen.evictions == []
            assert {pod["metadata"]["uid"] for pod in pods(cluster)} == before
            asked = len(seen.resizes)
            await recommend(cluster, "web", {"cpu": "350m", "memory": "256Mi"})
            await cluster.run_for(10 * MINUTE)
            assert len(seen.resizes) > asked
            statuses = [pod["status"]["containerStatuses"][0]["resources"]["requests"] for pod in ready_pods(cluster)]
            assert [requests["cpu"] for requests in statuses] == ["350m"] * 2

    run(main)


def test_a_resize_never_changes_the_qos_class() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.apply(make_vpa("web", target="web", mode="InPlaceOrRecreate"))
        cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        assert {pod["status"]["qosClass"] for pod in pods(cluster)} == {"BestEffort"}
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster):
            await cluster.run_for(8 * MINUTE)
            assert seen.resizes == []
            assert len(seen.evictions) == 2
            assert {pod["status"]["qosClass"] for pod in ready_pods(cluster)} == {"Burstable"}

    run(main, nodes=1)
