"""Going back to an older release: nothing stays behind that the older one would misread, component by component."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.objects.scheme import NODE_METRICS, NODE_SLOS, NODES
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.controller import SloController
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_hpa, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.autoscaling import autoscaler
from simulated.cluster import pods, run
from simulated.recommending import recommender, vpa_status
from simulated.updating import install_crds, recommend, vpa_parts

SOON, MINUTE = timedelta(seconds=10), timedelta(minutes=1)
Raw = dict[str, Any]


def test_the_horizontal_autoscaler_takes_its_observed_generation_back_and_wakes_as_the_older_one_does() -> None:
    queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}

    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("web", minimum=0, maximum=5, metrics=[{"type": "External", "external": queue}]))
        cluster.metrics.set_external_metric("default", "queue", 0.0)
        async with autoscaler(cluster) as newer:
            await cluster.run_for(7 * MINUTE)
            assert newer.replicas("default", "web") == 0
            assert newer.status("default", "web")["observedGeneration"] == 1
            assert newer.condition("default", "web", "ScaledToZero")[0] == "True"
        async with autoscaler(cluster, HpaSettings(compat="1.33")) as older:
            await cluster.run_for(MINUTE)
            assert "observedGeneration" not in older.status("default", "web")
            cluster.metrics.set_external_metric("default", "queue", 30.0)
            await cluster.run_for(MINUTE)
            assert older.replicas("default", "web") == 3, "what the newer release noted is not looked at"

    run(main, nodes=1)


def test_the_recommender_takes_back_what_only_gates_of_the_newer_release_write() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        vpa = make_vpa("web", target="web", mode="Off")
        vpa["spec"]["resourcePolicy"] = {"podPolicy": {"mode": "Auto"}}
        await cluster.apply(vpa)
        for settings, whole in (
            (RecommenderSettings(compat="1.8", feature_gates=("AllAlpha=true",)), True),
            (RecommenderSettings(compat="1.7"), False),
        ):
            async with recommender(cluster, settings):
                await cluster.run_for(5 * MINUTE)
            status = vpa_status(cluster, "default", "web")
            assert status.keys() == {"recommendation", "conditions", "observedGeneration"}
            assert ("podRecommendation" in status["recommendation"]) is whole

    run(main, nodes=1)


def test_webhook_and_updater_write_the_same_under_both_releases() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web", mode="InPlaceOrRecreate"))
        await cluster.run_for(MINUTE)
        seen: list[Sequence[str]] = []
        for compat, size in (("1.8", "300m"), ("1.7", "600m")):
            await recommend(cluster, "web", {"cpu": size, "memory": "128Mi"})
            admission = AdmissionSettings(local_name="vpa", compat=compat)
            async with vpa_parts(cluster, UpdaterSettings(compat=compat), admission):
                await cluster.run_for(8 * MINUTE)
            found = pods(cluster)
            assert {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in found} == {size}
            seen.append(sorted({name for pod in found for name in pod["metadata"].get("annotations") or {}}))
        assert seen[0] == seen[1]

    run(main, nodes=2)


def test_the_slo_controller_renders_node_slos_and_resources_as_the_older_one() -> None:
    config = {
        "colocation-config": {"enable": True, "midUnallocatedPercent": 50, "midReclaimMode": "static"},
        "resource-threshold-config": {
            "clusterStrategy": {"enable": True, "cpuSuppressMinPercent": 10, "cpuAllocatableEvictThresholdPercent": 90}
        },
        "resource-amplification-config": {"enable": True, "resourceAmplificationRatio": {"memory": 1.5}},
    }

    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        await cluster.ensure_namespace("koordinator-system")
        data = {name: msgspec.json.encode(value).decode() for name, value in config.items()}
        await cluster.apply(make_config_map("slo-controller-config", "koordinator-system", data))
        shown: dict[str, tuple[Raw, Raw]] = {}
        for compat in ("1.8", "1.4"):
            await _control(cluster, compat)
            rendered = (await cluster.client().get_raw(NODE_SLOS, "node-1"))["spec"]["resourceUsedThresholdWithBE"]
            node = await cluster.client().get_raw(NODES, "node-1")
            shown[compat] = rendered, node["metadata"].get("annotations") or {}
        newer = {"cpuSuppressMinPercent", "cpuAllocatableEvictThresholdPercent"}
        assert newer <= shown["1.8"][0].keys()
        assert newer.isdisjoint(shown["1.4"][0])
        ratio = "node.koordinator.sh/resource-amplification-ratio"
        assert ratio in shown["1.8"][1]
        assert ratio not in shown["1.4"][1]

    run(main)


async def _control(cluster: SimCluster, compat: str) -> None:
    """Run the SLO controller of a release until it has seen a report of the node."""
    client = cluster.client()
    recorder = EventRecorder(client, clock=cluster.clock, component="slo")
    settings = SloSettings(leader_elect=False, compat=compat)
    made = SloController(client, cluster.clock, settings, Telemetry(), recorder, random.Random(1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        await cluster.run_for(SOON)
        usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
        stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"updateTime": stamp, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
        await client.patch(NODE_METRICS, "node-1", MergePatch({"status": status}), subresource="status")
        await cluster.run_for(MINUTE)
        task.cancel()
