"""Features of the VPA behind gates, from the recommender over the webhook to the pod, in virtual time."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import NODES, PODS, VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_container, make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.explain import render
from kubetide.vpa.recommender.loop import recompute
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import events, get, pods, run
from simulated.gated import POOL, Raw, by_node, requests, run_all, two_pools
from simulated.recommending import CHECKPOINTS, recommended, recommender, vpa_status
from simulated.recommending import VPAS as VPA_KEY
from simulated.updating import install_crds, vpa_parts

MINUTE = timedelta(minutes=1)


# ---------------------------------------------------------------------- the pod as a whole


async def two_containers(cluster: SimCluster, pod_policy: Raw | None, *, modes: Sequence[str]) -> None:
    await install_crds(cluster)
    containers = [
        make_container("main", cpu="100m", memory="128Mi"),
        make_container("helper", cpu="100m", memory="128Mi"),
    ]
    await cluster.apply(make_deployment("web", replicas=2, containers=containers))
    vpa = make_vpa("web", target="web", mode="Recreate")
    vpa["spec"]["resourcePolicy"] = {
        "containerPolicies": [
            {"containerName": name, "mode": mode} for name, mode in zip(("main", "helper"), modes, strict=True)
        ]
    }
    if pod_policy is not None:
        vpa["spec"]["resourcePolicy"]["podPolicy"] = pod_policy
    await cluster.apply(vpa)
    cluster.set_usage("default", "web", cpu="800m", memory="600Mi")
    await cluster.run_for(MINUTE)


def test_a_pod_as_a_whole_follows_what_its_containers_are_recommended() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_containers(
            cluster, {"mode": "Auto", "controlledResources": ["cpu"]}, modes=["RecommendationOnly"] * 2
        )
        await run_all(cluster, ["VPAPodLevelResources"], 20 * MINUTE)
        found = vpa_status(cluster, "default", "web")["recommendation"]
        total = sum(parse_quantity(entry["target"]["cpu"]).milli for entry in found["containerRecommendations"])
        assert parse_quantity(found["podRecommendation"]["target"]["cpu"]).milli == total
        assert "memory" not in found["podRecommendation"]["target"], "it is not controlled"
        for pod in pods(cluster):
            assert abs(parse_quantity(pod["spec"]["resources"]["requests"]["cpu"]).milli - total) <= total // 5
            assert "memory" not in pod["spec"]["resources"]["requests"]
            assert [requests(pod, at)["cpu"] for at in (0, 1)] == ["100m", "100m"], "only recommended for"
            assert "pod: cpu request" in pod["metadata"]["annotations"]["vpaUpdates"]

    run(main, nodes=2)


def test_a_pod_as_a_whole_stays_within_its_policy_but_holds_its_containers() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_containers(cluster, {"mode": "Auto", "maxAllowed": {"cpu": "300m"}}, modes=["Auto", "Off"])
        await run_all(cluster, ["VPAPodLevelResources"], 20 * MINUTE)
        shown = vpa_status(cluster, "default", "web")["recommendation"]["podRecommendation"]
        assert shown["target"]["cpu"] == "300m"
        for pod in pods(cluster):
            own = sum(parse_quantity(requests(pod, at)["cpu"]).milli for at in (0, 1))
            assert own > 300
            assert parse_quantity(pod["spec"]["resources"]["requests"]["cpu"]).milli == own

    run(main, nodes=2)


def test_without_the_gate_the_pod_as_a_whole_is_neither_recommended_for_nor_changed() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_containers(cluster, {"mode": "Auto"}, modes=["Auto", "Auto"])
        await run_all(cluster, ["VPAPodLevelResources"], 10 * MINUTE)
        assert "podRecommendation" in vpa_status(cluster, "default", "web")["recommendation"]
        await run_all(cluster, [], 3 * MINUTE)
        assert "podRecommendation" not in vpa_status(cluster, "default", "web")["recommendation"]

    run(main, nodes=2)


# ---------------------------------------------------------------------- DaemonSets by group of nodes


def test_a_daemon_set_gets_a_size_for_each_group_of_nodes() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_pools(cluster)
        await run_all(cluster, ["DaemonSetScope"], 30 * MINUTE)
        status = vpa_status(cluster, "default", "agent")
        assert status["recommendation"] == {}
        targets = {
            group["scopeValue"]: parse_quantity(group["containerRecommendations"][0]["target"]["cpu"]).milli
            for group in status["groups"]
        }
        assert targets.keys() == {"large", "small", "__absent__"}
        assert targets["large"] > 3000 > 2500 > targets["small"] > 1500 > targets["__absent__"] > 800
        sizes = by_node(cluster)
        assert sizes["large-1"] > 3000 > 2000 >= sizes["small-1"] > 1500 > 1000 >= sizes["other-1"] > 800
        stored = {item["spec"]["vpaObjectName"] for item in cluster.world.all(CHECKPOINTS)}
        assert stored == {"agent@large", "agent@small", "agent@__absent__"}

    run(main)


async def forget_fields(cluster: SimCluster) -> None:
    """Install the CRD as it is upstream, without the fields that are only proposed."""
    crd = crds.load("verticalpodautoscalers")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["spec"]["properties"]["scope"]
    del schema["spec"]["properties"]["resourcePolicy"]["properties"]["podPolicy"]
    del schema["status"]["properties"]["groups"]
    del schema["status"]["properties"]["recommendation"]["properties"]["podRecommendation"]
    await cluster.apply(crd)


def test_where_the_crd_has_no_fields_annotations_carry_scope_and_groups() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_pools(cluster, field=False)
        await forget_fields(cluster)
        await run_all(cluster, ["DaemonSetScope"], 30 * MINUTE)
        vpa = get(cluster, VPA_KEY, "default", "agent")
        assert "groups" not in vpa["status"]
        groups = json.loads(vpa["metadata"]["annotations"]["kubetide.io/vpa-groups"])
        assert [group["scopeValue"] for group in groups] == ["__absent__", "large", "small"]
        sizes = by_node(cluster)
        assert sizes["large-1"] > 3000 > 2000 >= sizes["small-1"] > 1500 > 1000 >= sizes["other-1"] > 800

    run(main)


def test_where_the_crd_has_no_field_an_annotation_carries_the_pod_policy() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_containers(cluster, None, modes=["Auto", "Auto"])
        await forget_fields(cluster)
        policy = {"kubetide.io/vpa-pod-policy": '{"mode": "Auto", "minAllowed": {"memory": "3Gi"}}'}
        body = {"metadata": {"annotations": policy}}
        await cluster.client().patch(VPAS, "web", MergePatch(body), namespace="default")
        await run_all(cluster, ["VPAPodLevelResources"], 20 * MINUTE)
        assert "podRecommendation" not in vpa_status(cluster, "default", "web")["recommendation"]
        assert {pod["spec"]["resources"]["requests"]["memory"] for pod in pods(cluster)} == {"3Gi"}

    run(main, nodes=2)


def test_groups_survive_a_restart_and_are_gone_without_the_gate() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_pools(cluster)
        settings = RecommenderSettings(feature_gates=("DaemonSetScope=true",), checkpoints_gc_interval=2 * MINUTE)
        async with recommender(cluster, settings):
            await cluster.run_for(10 * MINUTE)
        before = {
            g["scopeValue"]: g["containerRecommendations"] for g in vpa_status(cluster, "default", "agent")["groups"]
        }
        samples = {i["spec"]["vpaObjectName"]: i["status"]["totalSamplesCount"] for i in cluster.world.all(CHECKPOINTS)}
        async with recommender(cluster, settings):
            await cluster.run_for(3 * MINUTE)
        after = {i["spec"]["vpaObjectName"]: i["status"]["totalSamplesCount"] for i in cluster.world.all(CHECKPOINTS)}
        assert set(before) == {"large", "small", "__absent__"}
        assert all(after[name] > count for name, count in samples.items())
        async with recommender(cluster, RecommenderSettings(checkpoints_gc_interval=2 * MINUTE)):
            await cluster.run_for(8 * MINUTE)
        status = vpa_status(cluster, "default", "agent")
        assert "groups" not in status
        assert recommended(cluster, "default", "agent")["cpu"] > 800
        assert {item["spec"]["vpaObjectName"] for item in cluster.world.all(CHECKPOINTS)} == {"agent"}

    run(main)


def test_a_node_that_changes_its_label_takes_its_pod_to_another_group() -> None:
    async def main(cluster: SimCluster) -> None:
        await two_pools(cluster)
        gates = ("DaemonSetScope=true",)
        async with recommender(cluster, RecommenderSettings(feature_gates=gates)) as running:
            await cluster.run_for(5 * MINUTE)
            body = {"metadata": {"labels": {POOL: "large"}}}
            await cluster.client().patch(NODES, "other-1", MergePatch(body))
            await cluster.run_for(3 * MINUTE)
            found = running.recommender.model.vpas
            key = ObjectKey("default", "agent@large")
            assert found[key].pod_count == 2
            shown = running.recommender.explain("vpa", "default/agent")
            assert shown is not None
            assert shown["groups"].keys() >= {"large", "small"}
            assert "nodes with pool=small" in render(shown)
        # Without a recommender the checkpoints tell the same.
        told = await recompute(cluster.client(), cluster.clock, RecommenderSettings(), ObjectKey("default", "agent"))
        assert told["groups"].keys() >= {"large", "small"}
        assert all(containers[0]["samples"] > 0 for containers in told["groups"].values())
        assert "rules of VPA 1.7" in render(told)

    run(main)


# ---------------------------------------------------------------------- percentiles and limits of one VPA


async def one_policy(cluster: SimCluster, name: str, policy: Raw, **resources: Any) -> None:
    await cluster.apply(make_deployment(name, replicas=2, **resources))
    await cluster.apply(make_vpa(name, target=name, mode="Recreate", policies=[{"containerName": "*", **policy}]))


def test_a_vpa_with_percentiles_of_its_own_sizes_its_pods_by_them() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        asked = {"cpu": "100m", "memory": "128Mi"}
        await one_policy(cluster, "usual", {}, **asked)
        await one_policy(cluster, "peak", {"recommendationPercentiles": {"targetCPU": 100}}, **asked)
        await one_policy(cluster, "low", {"recommendationPercentiles": {"targetCPU": 50, "upperBoundCPU": 60}}, **asked)
        gates = ("PerVPAConfig=true",)
        async with recommender(cluster, RecommenderSettings(feature_gates=gates)):
            for step in range(20):
                cpu = "900m" if step == 10 else "500m" if step % 5 == 0 else "200m"
                for name in ("usual", "peak", "low"):
                    cluster.set_usage("default", name, cpu=cpu, memory="64Mi")
                await cluster.run_for(4 * MINUTE)
                if step == 5:
                    told = events(cluster, reason="InvalidTuning")
                    assert [(one["involvedObject"]["name"], one["count"]) for one in told] == [("peak", 1)]
        targets = {name: recommended(cluster, "default", name)["cpu"] for name in ("low", "usual", "peak")}
        assert targets["low"] < targets["usual"] < targets["peak"]
        uppers = {name: recommended(cluster, "default", name, bound="upperBound")["cpu"] for name in targets}
        assert uppers["low"] < uppers["usual"]
        admission = AdmissionSettings(local_name="vpa", feature_gates=gates)
        async with vpa_parts(cluster, UpdaterSettings(feature_gates=gates), admission):
            await cluster.run_for(MINUTE)
            for pod in pods(cluster):
                await cluster.client().delete(PODS, pod["metadata"]["name"], namespace="default")
            await cluster.run_for(2 * MINUTE)
        for name, target in targets.items():
            assert {parse_quantity(requests(pod)["cpu"]).milli for pod in pods(cluster, app=name)} == {target}

    run(main, nodes=3)


def test_limits_follow_requests_as_the_policy_says() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        ratio = {
            "cpu": {"type": "Percentage", "percentage": 150},
            "memory": {"type": "Quantity", "quantity": "64Mi"},
        }
        asked = {"cpu": "100m", "memory": "128Mi", "cpu_limit": "100m"}
        await one_policy(cluster, "web", {"requestToLimitRatio": ratio}, **asked)
        cluster.set_usage("default", "web", cpu="90m", memory="300Mi")
        await cluster.run_for(MINUTE)
        await run_all(cluster, ["RequestToLimitRatio"], 20 * MINUTE)
        for pod in pods(cluster):
            resources = pod["spec"]["containers"][0]["resources"]
            has = {r: {n: parse_quantity(a) for n, a in resources[r].items()} for r in ("requests", "limits")}
            assert has["requests"]["memory"].value > 300 * 2**20
            assert has["limits"]["memory"] == has["requests"]["memory"] + parse_quantity("64Mi")
            assert has["limits"]["cpu"].milli == has["requests"]["cpu"].milli * 150 // 100

    run(main, nodes=2)
