"""Colocation profiles on a simulated cluster: what pods become, what is refused, and that agents act on it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import COLOCATION_PROFILES, MUTATING_WEBHOOKS, PODS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import EVENTS
from kubetide.install.objects import manifests
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.slo.colocation.explain import recompute
from kubetide.slo.colocation.explain import render as explained
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_pod
from kubetide.wiring import Dependencies, build
from qosagent import granted, make_agent, running
from simulated.cluster import pods, run

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
Raw = dict[str, Any]


@asynccontextmanager
async def colocated(cluster: SimCluster, **settings: Any) -> AsyncIterator[None]:
    """Run the webhook and the SLO controller, installed as their manifests say."""
    objects = manifests(("slo", "colocation"), namespace="kube-system", image="x")
    await cluster.apply([each for each in objects if each["kind"] != "Deployment"])
    async with asyncio.TaskGroup() as group:
        tasks = []
        for name, made in (("slo", SloSettings(leader_elect=False)), ("colocation", ColocationSettings(**settings))):
            world = Dependencies(
                client=cluster.client(),
                clock=cluster.clock,
                telemetry=Telemetry(),
                rng=random.Random(1),
                local_webhooks=cluster.api.admission,
            )
            tasks += [group.create_task(part.run(), name=part.name) for part in build(name, world, made)]
        await cluster.run_for(15 * SECOND)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def profile(name: str = "batch", **spec: Any) -> Raw:
    return {
        "apiVersion": COLOCATION_PROFILES.api_version,
        "kind": COLOCATION_PROFILES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def batch_profile(**spec: Any) -> Raw:
    chosen = {"matchLabels": {"tier": "batch"}}
    return profile(namespaceSelector=chosen, qosClass="BE", priorityClassName="koord-batch", **spec)


async def batch_namespace(cluster: SimCluster, name: str = "jobs") -> None:
    await cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": "batch"}}}
    )


def test_a_batch_namespace_is_turned_into_best_effort_pods_which_the_agent_suppresses() -> None:
    async def main(cluster: SimCluster) -> tuple[Raw, float, float]:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        async with colocated(cluster):
            await batch_namespace(cluster)
            colocation = '{"enable": true, "cpuReclaimThresholdPercent": 80, "metricReportIntervalSeconds": 20}'
            thresholds = '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}'
            data = {"colocation-config": colocation, "resource-threshold-config": thresholds}
            await cluster.apply(
                [
                    batch_profile(),
                    make_config_map("slo-controller-config", "koordinator-system", data),
                    make_deployment("web", cpu="4", memory="1Gi"),
                    make_deployment("crunch", "jobs", cpu="4", memory="1Gi", cpu_limit="4", memory_limit="1Gi"),
                ]
            )
            cluster.set_usage("default", "web", cpu=0.5)
            cluster.set_usage("jobs", "crunch", cpu=4)
            async with running(make_agent(cluster, enable_node_metric_report=True)):
                await cluster.run_for(10 * MINUTE)
                (pod,) = pods(cluster, "jobs")
                before = granted(cluster, pod["metadata"]["name"])
                cluster.set_usage("default", "web", cpu=4)
                await cluster.run_for(5 * MINUTE)
                after = granted(cluster, pod["metadata"]["name"])
            (web,) = pods(cluster, "default")
            assert "kubetide.io/colocation-profiles" not in (web["metadata"].get("annotations") or {})
            return pod, before, after

    pod, before, after = run(main)
    assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert pod["spec"]["priority"] == 5000
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"kubernetes.io/batch-cpu": "4k", "kubernetes.io/batch-memory": "1Gi"}
    assert pod["metadata"]["annotations"]["kubetide.io/colocation-profiles"] == '["batch"]'
    assert pod["status"]["phase"] == "Running", "it found room in what the SLO controller says is left"
    assert before > 3.5
    assert after < before / 2, "the service needs its cores again"


def test_only_the_share_that_a_profile_asks_for() -> None:
    async def main(cluster: SimCluster) -> int:
        async with colocated(cluster):
            await batch_namespace(cluster)
            await cluster.apply(batch_profile(probability="30%"))
            await cluster.run_for(SECOND)
            await cluster.apply([make_pod(f"p{number}", "jobs", cpu="10m") for number in range(200)])
            return len(pods(cluster, "jobs", **{"koordinator.sh/qosClass": "BE"}))

    assert 40 <= run(main) <= 80


@pytest.mark.parametrize(
    ("labels", "spec", "message"),
    [
        pytest.param({"koordinator.sh/qosClass": "LSR"}, {}, "set priorityClassName", id="validation"),
        pytest.param({"broken": "yes"}, {}, "PriorityClass 'gone' does not exist", id="profile"),
    ],
)
def test_a_pod_that_cannot_be_what_it_says_is_refused(labels: Raw, spec: Raw, message: str) -> None:
    async def main(cluster: SimCluster) -> str:
        async with colocated(cluster):
            broken = {"matchLabels": {"broken": "yes"}}
            await cluster.apply(profile("broken", selector=broken, priorityClassName="gone"))
            await cluster.run_for(SECOND)
            with pytest.raises(ApiError) as refused:
                await cluster.client().create(PODS, make_pod("p", labels=labels, cpu="1", **spec), namespace="default")
            return str(refused.value)

    assert message in run(main)


REQUIRED = {
    "enable": " True",
    "rules": '[{"name": "owned", "requiredLabels": ["team"], "namespaceWhitelist": ["jobs"]}]',
}


@pytest.mark.parametrize(
    ("gate", "namespace", "labels", "refused"),
    [
        pytest.param(True, "default", {}, True, id="label-missing"),
        pytest.param(True, "default", {"team": ""}, False, id="any-value-will-do"),
        pytest.param(True, "default", {"pod.koordinator.sh/skip-enhanced-validation": "true"}, False, id="skipped"),
        pytest.param(True, "jobs", {}, False, id="whitelisted-namespace"),
        pytest.param(False, "default", {}, False, id="gate-off"),
    ],
)
def test_labels_that_a_config_map_requires(gate: bool, namespace: str, labels: Raw, refused: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await batch_namespace(cluster)
        await batch_namespace(cluster, "koordinator-system")
        gates = f"EnablePodEnhancedValidator={str(gate).lower()}"
        async with colocated(cluster, feature_gates=(gates,)):
            await cluster.apply(make_config_map("pod-enhanced-validator-config", "koordinator-system", REQUIRED))
            await cluster.run_for(SECOND)
            made = make_pod("p", namespace, labels=labels, cpu="1")
            if refused:
                with pytest.raises(ApiError, match="rule 'owned' requires the label team"):
                    await cluster.client().create(PODS, made, namespace=namespace)
            else:
                await cluster.client().create(PODS, made, namespace=namespace)

    run(main)


def test_a_new_namespace_and_a_new_priority_class_count_at_once() -> None:
    async def main(cluster: SimCluster) -> Raw:
        async with colocated(cluster):
            await cluster.apply(
                profile("new", namespaceSelector={"matchLabels": {"tier": "batch"}}, priorityClassName="own")
            )
            await cluster.run_for(SECOND)
            own = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "own"},
                "value": 7001,
            }
            await cluster.apply(own)
            await batch_namespace(cluster)
            await cluster.apply(make_pod("p", "jobs", cpu="1"))
            (pod,) = pods(cluster, "jobs")
            return pod

    pod = run(main)
    assert pod["spec"]["priority"] == 7001
    assert "kubernetes.io/mid-cpu" in pod["spec"]["containers"][0]["resources"]["requests"]


def test_a_profile_that_selects_nothing_is_reported_on_itself() -> None:
    async def main(cluster: SimCluster) -> list[tuple[str, str]]:
        async with colocated(cluster):
            bad = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
            await cluster.apply(profile("typo", selector=bad, qosClass="BE"))
            await cluster.run_for(SECOND)
            await cluster.apply([make_pod("p", cpu="1"), make_pod("q", cpu="1")])
            await cluster.run_for(10 * SECOND)
            assert not pods(cluster, "default", **{"koordinator.sh/qosClass": "BE"})
            events = cluster.world.all(EVENTS)
            return [
                (each["involvedObject"]["name"], each["reason"])
                for each in events
                if each["reason"] == "ProfileNotApplied"
            ]

    assert run(main) == [("typo", "ProfileNotApplied")]


def test_the_registration_is_put_back_and_goes_with_its_gate() -> None:
    async def main(cluster: SimCluster) -> None:
        client = cluster.client()
        async with colocated(cluster):
            before = (await client.get_raw(MUTATING_WEBHOOKS, "kubetide-colocation"))["webhooks"]
            await client.patch(MUTATING_WEBHOOKS, "kubetide-colocation", MergePatch({"webhooks": []}))
            await cluster.run_for(15 * SECOND)
            assert (await client.get_raw(MUTATING_WEBHOOKS, "kubetide-colocation"))["webhooks"] == before
            assert before[0]["failurePolicy"] == "Fail"
        async with colocated(cluster, feature_gates=("PodMutatingWebhook=false",)):
            with pytest.raises(NotFound):
                await client.get_raw(MUTATING_WEBHOOKS, "kubetide-colocation")

    run(main)


def test_explain_reports_which_profile_made_a_pod_what_it_is() -> None:
    async def main(cluster: SimCluster) -> tuple[str, str]:
        async with colocated(cluster):
            await batch_namespace(cluster)
            await cluster.apply(batch_profile())
            await cluster.run_for(SECOND)
            await cluster.apply([make_pod("p", "jobs", cpu="1500m"), make_pod("plain", cpu="1")])
            client, settings = cluster.client(), ColocationSettings()
            found = []
            for key in ("jobs/p", "default/plain"):
                trace = await recompute(client, cluster.clock, settings, ObjectKey.parse(key))
                found.append(explained(trace["colocation"]))
            return found[0], found[1]

    made, plain = run(main)
    assert "profile batch" in made
    assert "koord-batch" in made
    assert "kubernetes.io/batch-cpu 1500" in made
    assert "no colocation profile was applied" in plain


def test_the_crd_keeps_fields_that_are_not_known_and_refuses_an_unknown_class() -> None:
    async def main(cluster: SimCluster) -> Raw:
        await cluster.apply(crds.load("clustercolocationprofiles"))
        client = cluster.client()
        with pytest.raises(ApiError, match="qosClass"):
            await client.create(COLOCATION_PROFILES, profile("x", qosClass="FAST"))
        await client.create(
            COLOCATION_PROFILES,
            profile("x", qosClass="BE", later={"field": 1}, patch={"metadata": {"labels": {"a": None}}}),
        )
        spec: Raw = (await client.get_raw(COLOCATION_PROFILES, "x"))["spec"]
        return spec

    spec = run(main)
    assert spec["later"] == {"field": 1}
    assert spec["patch"] == {"metadata": {"labels": {"a": None}}}


# ---------------------------------------------------------------------- pods that are already there, and Reservations


def test_pods_that_wait_for_a_node_are_caught_up_with_by_profiles_that_ask_for_it() -> None:
    chosen = {"matchLabels": {"app": "crunch"}}

    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="2", memory="4Gi")
        for name, cpu in (("waits", "64"), ("runs", "100m")):
            labels = {"app": "crunch", "team": "a", "koordinator.sh/priority-class": "koord-batch"}
            await cluster.apply(make_pod(name, "default", labels=labels, cpu=cpu, memory="64Mi"))
        await cluster.apply(make_pod("other", "default", labels={"app": "web"}, cpu="64", memory="64Mi"))
        await cluster.run_for(MINUTE)
        gates = ("ColocationProfileController=true",)
        async with colocated(cluster, feature_gates=gates, leader_elect=False):
            late = profile(
                "late",
                selector=chosen,
                qosClass="BE",
                labels={"tier": "batch"},
                labelSuffixes={"team": "-night"},
                priorityClassName="koord-batch",
            )
            late["metadata"]["labels"] = {"config.koordinator.sh/controller-managed": "true"}
            await cluster.apply([late, profile("webhook-only", selector=chosen, labels={"never": "here"})])
            await cluster.apply(profile("all", labels={"everybody": "yes"}))
            await cluster.run_for(12 * MINUTE)
            found = {pod["metadata"]["name"]: pod for pod in pods(cluster)}
            labels = found["waits"]["metadata"]["labels"]
            assert labels["koordinator.sh/qosClass"] == "BE"
            assert (labels["tier"], labels["team"]) == ("batch", "a-night"), "the suffix is appended once"
            assert "everybody" not in labels
            assert "never" not in labels
            spec = found["waits"]["spec"]
            assert "cpu" in spec["containers"][0]["resources"]["requests"], "what exists keeps its resources"
            assert spec.get("priorityClassName") is None
            for name in ("runs", "other"):
                assert "tier" not in found[name]["metadata"]["labels"]
            clock, settings = cluster.clock, ColocationSettings()
            told = await recompute(cluster.client(), clock, settings, ObjectKey("default", "waits"))
            assert told["colocation"]["applied"] == ["late"]

    run(main)


def test_without_its_gate_pending_pods_are_left_alone() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("waits", "default", labels={"app": "crunch"}, cpu="1", memory="64Mi"))
        async with colocated(cluster):
            late = profile("late", selector={"matchLabels": {"app": "crunch"}}, labels={"tier": "batch"})
            late["metadata"]["labels"] = {"config.koordinator.sh/controller-managed": "true"}
            await cluster.apply(late)
            await cluster.run_for(3 * MINUTE)
        assert "tier" not in pods(cluster)[0]["metadata"]["labels"]

    run(main)


RESERVATIONS = "scheduling.koordinator.sh"


async def reservations(cluster: SimCluster) -> None:
    """Let the cluster know Reservations, whatever they contain."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "reservations", "singular": "reservation", "kind": "Reservation"}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    await cluster.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"reservations.{RESERVATIONS}"},
            "spec": {"group": RESERVATIONS, "scope": "Cluster", "names": names, "versions": [version]},
        }
    )
    await cluster.run_for(SECOND)


@pytest.mark.parametrize(("gates", "changed"), [((), False), (("ReservationMutatingWebhook=true",), True)])
def test_a_reservation_is_made_by_the_same_profiles(gates: tuple[str, ...], changed: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        async with colocated(cluster, feature_gates=gates):
            await reservations(cluster)
            await cluster.apply(
                profile(
                    namespaceSelector={"matchLabels": {"tier": "nowhere"}},
                    selector={"matchLabels": {"app": "crunch"}},
                    qosClass="BE",
                    priorityClassName="koord-batch",
                    schedulerName="koord-scheduler",
                )
            )
            await cluster.run_for(MINUTE)
            container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
            made = await cluster.apply(
                {
                    "apiVersion": f"{RESERVATIONS}/v1alpha1",
                    "kind": "Reservation",
                    "metadata": {"name": "hold", "labels": {"app": "crunch"}},
                    "spec": {"ttl": "1h", "template": {"spec": {"containers": [container]}}},
                }
            )
        stored = made[0] if isinstance(made, list) else made
        assert (stored["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE") is changed
        spec = stored["spec"]["template"]["spec"]
        assert (spec.get("schedulerName"), spec.get("priorityClassName")) == (
            ("koord-scheduler", "koord-batch") if changed else (None, None)
        )
        assert spec["containers"] == [container], "resources are not translated"
        assert stored["spec"]["ttl"] == "1h"

    run(main)
