"""WorkloadPlans on a simulated cluster: what they make, what they leave alone, and what goes with them."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide import crds
from kubetide.api.objects.coordination import COORDINATION_ANNOTATION, CoordinationNote, note_text
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import KubetideError
from kubetide.plan.explain import recompute, render
from kubetide.plan.settings import PlanSettings
from kubetide.simulate.controllers import Controllers, parse_with
from kubetide.testing import Cluster, make_deployment, make_hpa, make_vpa, virtual_time
from simulated.cluster import deployment, run

Raw = dict[str, Any]
CRDS = ("workloadplans", "verticalpodautoscalers", "verticalpodautoscalercheckpoints")


def make_plan(name: str = "web", **spec: Any) -> Raw:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "kubetide.io/v1alpha1",
        "kind": "WorkloadPlan",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRef": reference, "replicas": {"max": 10}, **spec},
    }


def condition(cluster: Cluster, kind: str = "Ready", name: str = "web") -> Raw:
    conditions = (cluster.get("WorkloadPlan", name).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


async def prepared(cluster: Cluster, *components: str) -> None:
    await cluster.apply(*(crds.load(name) for name in CRDS))
    await cluster.apply(make_deployment("web", replicas=3, cpu="500m", memory="128Mi"))
    await cluster.start("plan", *components)


@virtual_time
async def test_a_plan_makes_an_hpa_and_a_vpa_that_follow_it_and_go_with_it() -> None:
    async with Cluster(nodes=1) as cluster:
        await prepared(cluster)
        await cluster.apply(
            make_plan(
                goal={"cpuUtilization": 60, "slo": {"metric": {"name": "p99_ms"}, "value": 250}},
                sizes={"cpu": {"min": "100m", "max": 2}},
                disruption={"windows": ["0 2 * * mon-fri 3h", "0 0 * * sun 4h"]},
            )
        )
        await cluster.run_for(timedelta(seconds=10))
        hpa, vpa = cluster.get("HorizontalPodAutoscaler", "web"), cluster.get("VerticalPodAutoscaler", "web")
        assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (2, 10)
        assert [metric["type"] for metric in hpa["spec"]["metrics"]] == ["Resource", "External"]
        assert hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
        assert vpa["spec"]["updatePolicy"]["updateMode"] == "InPlaceOrRecreate"
        policy = vpa["spec"]["resourcePolicy"]["containerPolicies"]
        assert policy == [{"containerName": "*", "minAllowed": {"cpu": "100m"}, "maxAllowed": {"cpu": "2"}}]
        assert vpa["metadata"]["annotations"]["kubetide.io/hpa-conflicts"] == "coordinate"
        assert vpa["metadata"]["annotations"]["kubetide.io/update-windows"] == "0 2 * * mon-fri 3h; 0 0 * * sun 4h"
        assert condition(cluster)["reason"] == "Planned"

        # A hand that changes what the plan says is undone, what it says nothing about stays.
        behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
        await cluster.patch("HorizontalPodAutoscaler", "web", {"spec": {"maxReplicas": 50, "behavior": behavior}})
        change = {"disruption": {"windows": None}, "sizes": None, "goal": {"slo": None}, "replicas": {"max": 12}}
        await cluster.patch("WorkloadPlan", "web", {"spec": change})
        await cluster.run_for(timedelta(seconds=10))
        hpa, vpa = cluster.get("HorizontalPodAutoscaler", "web"), cluster.get("VerticalPodAutoscaler", "web")
        assert hpa["spec"]["maxReplicas"] == 12
        assert hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 60
        assert len(hpa["spec"]["metrics"]) == 1
        assert "resourcePolicy" not in vpa["spec"]
        assert "kubetide.io/update-windows" not in vpa["metadata"]["annotations"]

        await cluster.delete("WorkloadPlan", "web")
        await cluster.run_for(timedelta(minutes=1))
        assert not cluster.list("HorizontalPodAutoscaler")
        assert not cluster.list("VerticalPodAutoscaler")


@virtual_time
async def test_a_plan_is_explained_by_what_it_comes_to() -> None:
    async with Cluster(nodes=1) as cluster:
        await prepared(cluster)
        await cluster.apply(make_plan(goal={"cpuUtilization": 60}, replicas={"min": 2, "max": 12}))
        await cluster.run_for(timedelta(seconds=10))
        found = await recompute(cluster.client(), SystemClock(), PlanSettings(), ObjectKey("default", "web"))
        text = render(found)
        assert text.splitlines()[0] == "WorkloadPlan default/web"
        assert "Planned: HorizontalPodAutoscaler web and VerticalPodAutoscaler web follow one plan" in text
        assert "60 % of the CPU" in text
        assert "2 to 12 allowed" in text
        assert "kubetide explain hpa default/web" in text


@virtual_time
async def test_what_a_plan_did_not_make_is_neither_adopted_nor_changed() -> None:
    async with Cluster(nodes=1) as cluster:
        await prepared(cluster)
        await cluster.apply(make_hpa("theirs", target="web", maximum=5, cpu_percent=50))
        await cluster.apply(make_plan())
        await cluster.run_for(timedelta(seconds=10))
        assert condition(cluster)["status"] == "False"
        assert condition(cluster)["message"] == "HorizontalPodAutoscaler theirs has the same target; nothing is changed"
        assert not cluster.list("VerticalPodAutoscaler")
        assert cluster.events(reason="Conflict", name="web")
        await cluster.delete("HorizontalPodAutoscaler", "theirs")
        await cluster.apply(make_vpa("web", target="other"))
        await cluster.run_for(timedelta(seconds=10))
        assert "exists and does not belong to this plan" in condition(cluster)["message"]
        assert cluster.get("VerticalPodAutoscaler", "web")["spec"]["targetRef"]["name"] == "other"
        await cluster.delete("VerticalPodAutoscaler", "web")
        await cluster.run_for(timedelta(seconds=10))
        assert condition(cluster)["status"] == "True"
        await cluster.apply(make_plan("second"))
        await cluster.run_for(timedelta(seconds=10))
        assert condition(cluster, name="second")["message"].startswith("WorkloadPlan web is older")
        found = await recompute(cluster.client(), SystemClock(), PlanSettings(), ObjectKey("default", "second"))
        assert "kubetide explain hpa" not in render(found)


def test_plans_are_carried_out_inside_a_simulation_with_an_hpa_that_follows_announcements() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=3, cpu="500m", memory="128Mi"))
        await cluster.apply(make_plan(replicas={"min": 3, "max": 12}))
        async with Controllers().at_work(cluster, parse_with("hpa,plan"), agent_interval=timedelta(seconds=5)):
            await cluster.run_for(timedelta(minutes=5))
            assert deployment(cluster, "default", "web")["spec"]["replicas"] == 3
            note = CoordinationNote(sizes={"app": 500}, count=7, announced=int(cluster.clock.now().timestamp()))
            change = MergePatch({"metadata": {"annotations": {COORDINATION_ANNOTATION: note_text(note)}}})
            await cluster.client().patch(VPAS, "web", change, namespace="default")
            await cluster.run_for(timedelta(minutes=1))
            assert deployment(cluster, "default", "web")["spec"]["replicas"] == 7

    run(main, nodes=1)


@virtual_time
async def test_a_plan_that_cannot_be_meant_is_refused_or_says_which_field_is_wrong() -> None:
    async with Cluster(nodes=1) as cluster:
        await prepared(cluster)
        for wrong in (
            {"replicas": {"min": 5, "max": 3}},
            {"replicas": {"max": 0}},
            {"goal": {"cpuUtilization": 100}},
            {"disruption": {"mode": "Sometimes"}},
        ):
            with pytest.raises(KubetideError):
                await cluster.apply(make_plan(**wrong))
        await cluster.apply(make_plan(sizes={"cpu": {"min": 2, "max": 1}}))
        await cluster.run_for(timedelta(seconds=10))
        assert condition(cluster)["reason"] == "InvalidPlan"
        assert "spec.sizes.cpu: min 2 is greater than max 1" in condition(cluster)["message"]
        assert not cluster.list("HorizontalPodAutoscaler")
        with pytest.raises(KubetideError):
            await cluster.patch("WorkloadPlan", "web", {"spec": {"targetRef": {"name": "other"}}})


@virtual_time
async def test_the_budget_bounds_the_count_at_the_present_size_and_the_size_at_the_smallest_count() -> None:
    async with Cluster(nodes=1) as cluster:
        await prepared(cluster, "recommender")
        await cluster.apply(make_plan(budget={"cpu": 2}))
        cluster.set_usage("web", cpu="300m", memory="64Mi")
        await cluster.run_for(timedelta(minutes=5))
        vpa = cluster.get("VerticalPodAutoscaler", "web")
        assert vpa["spec"]["resourcePolicy"]["containerPolicies"][0]["maxAllowed"] == {"cpu": "1"}
        # Pods request 500m, which is kept as long as nothing is known.
        assert vpa["status"]["recommendation"]["containerRecommendations"][0]["target"]["cpu"] == "500m"
        assert next(c for c in vpa["status"]["conditions"] if c["type"] == "HPAConflict")["reason"] == "Coordinated"
        assert cluster.get("HorizontalPodAutoscaler", "web")["spec"]["maxReplicas"] == 4
        assert condition(cluster, "BudgetLimited")["message"] == "2 of cpu are 4 pods of 500m"
        assert cluster.get("WorkloadPlan", "web")["status"]["size"]["cpu"] == "500m"
