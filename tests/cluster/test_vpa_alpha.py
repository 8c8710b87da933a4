"""Features of the VPA behind gates, from the recommender over the webhook to the pod, in virtual time."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_container, make_daemon_set, make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import pods, run
from simulated.recommending import CHECKPOINTS, recommender, vpa_status
from simulated.updating import install_crds, vpa_parts

MINUTE = timedelta(minutes=1)
POOL = "pool"
Raw = dict[str, Any]


async def run_all(cluster: SimCluster, gates: Sequence[str], span: timedelta) -> None:
    """Run recommender, updater and webhook with these gates for a while."""
    named = tuple(f"{gate}=true" for gate in gates)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(recommender(cluster, RecommenderSettings(feature_gates=named)))
        await stack.enter_async_context(
            vpa_parts(
                cluster,
                UpdaterSettings(feature_gates=named),
                AdmissionSettings(local_name="vpa", feature_gates=named),
            )
        )
        await cluster.run_for(span)


def requests(pod: Raw, container: int = 0) -> Raw:
    found: Raw = pod["spec"]["containers"][container]["resources"]["requests"]
    return found


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


async def two_pools(cluster: SimCluster, *, field: bool = True) -> None:
    await install_crds(cluster)
    cluster.add_node("large-1", cpu="8", labels={POOL: "large"})
    cluster.add_node("small-1", cpu="2", labels={POOL: "small"})
    cluster.add_node("other-1", cpu="1")
    await cluster.apply(make_daemon_set("agent", cpu="200m", memory="128Mi"))
    vpa = make_vpa("agent", target="agent", kind="DaemonSet", mode="Recreate", min_replicas=1)
    if field:
        vpa["spec"]["scope"] = POOL
    else:
        vpa["metadata"]["annotations"] = {"kubetide.io/vpa-scope": POOL}
    await cluster.apply(vpa)
    # What a node can give differs, and so does what its pod uses.
    cluster.set_usage("default", "agent", cpu="3", memory="100Mi")
    await cluster.run_for(MINUTE)


def by_node(cluster: SimCluster) -> dict[str, int]:
    return {pod["spec"]["nodeName"]: parse_quantity(requests(pod)["cpu"]).milli for pod in pods(cluster)}


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
