"""Native sidecars under the gate NativeSidecar: measured, recommended, patched at start, resized while they run."""

from datetime import timedelta
from typing import Any

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_container, make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import events, pods, run
from simulated.recommending import recommended, recommender
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)
GATES = ("NativeSidecar=true",)
SIZE = {"cpu": "300m", "memory": "300Mi"}


async def prepare(cluster: SimCluster, mode: str) -> None:
    await install_crds(cluster)
    deployment = make_deployment("web", replicas=2, cpu="100m", memory="128Mi")
    mesh = {**make_container("mesh", cpu="50m", memory="64Mi"), "restartPolicy": "Always"}
    setup = make_container("setup", cpu="50m", memory="64Mi")
    deployment["spec"]["template"]["spec"]["initContainers"] = [setup, mesh]
    await cluster.apply(deployment)
    await cluster.apply(make_vpa("web", target="web", mode=mode))
    cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
    await cluster.run_for(MINUTE)


def sidecars(cluster: SimCluster) -> list[dict[str, Any]]:
    return [pod["spec"]["initContainers"][1]["resources"]["requests"] for pod in pods(cluster)]


def test_a_sidecar_is_resized_in_place_with_its_pod() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "InPlaceOrRecreate")
        await recommend(cluster, "web", SIZE, container="mesh")
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, UpdaterSettings(feature_gates=GATES)):
            await cluster.run_for(8 * MINUTE)
        assert (len(seen.resizes), len(seen.evictions)) == (2, 0)
        assert sidecars(cluster) == [SIZE] * 2
        running = [pod["status"]["initContainerStatuses"][0]["resources"]["requests"] for pod in pods(cluster)]
        assert running == [SIZE] * 2
        others = [pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] for pod in pods(cluster)]
        assert others == ["50m"] * 2, "an init container that ends is left alone"
        told = [event["involvedObject"]["name"] for event in events(cluster, reason="InPlaceResizedByVPA")]
        assert sorted(told) == sorted(pod["metadata"]["name"] for pod in pods(cluster))
        for pod in pods(cluster):
            assert pod["metadata"]["annotations"]["vpaInPlaceUpdated"] == "true"
            conditions = {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}
            assert "PodResizePending" not in conditions
            assert "PodResizeInProgress" not in conditions
            restarts = [status.get("restartCount", 0) for status in pod["status"]["initContainerStatuses"]]
            assert restarts == [0] * len(restarts), "it was resized, not restarted"

    run(main, nodes=2)


def test_a_new_pod_starts_with_the_size_of_its_sidecar() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "Recreate")
        await recommend(cluster, "web", SIZE, container="mesh")
        admission = AdmissionSettings(local_name="vpa", feature_gates=GATES)
        async with vpa_parts(cluster, UpdaterSettings(feature_gates=GATES), admission=admission):
            await cluster.run_for(10 * MINUTE)
        assert sidecars(cluster) == [SIZE] * 2

    run(main, nodes=2)


def test_without_the_gate_sidecars_stay_as_they_are() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "InPlaceOrRecreate")
        await recommend(cluster, "web", SIZE, container="mesh")
        async with vpa_parts(cluster):
            await cluster.run_for(8 * MINUTE)
        assert [requests["cpu"] for requests in sidecars(cluster)] == ["50m"] * 2

    run(main, nodes=2)


def test_a_sidecar_is_measured_only_with_the_gate() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "Off")
        for gates, known in (((), False), (GATES, True)):
            async with recommender(cluster, RecommenderSettings(feature_gates=gates)):
                await cluster.run_for(10 * MINUTE)
            assert bool(recommended(cluster, "default", "web", "mesh")) is known
            assert not recommended(cluster, "default", "web", "setup")

    run(main, nodes=2)
