"""What can be scaled, by which metrics, and what happens when two want the same pods."""

from datetime import timedelta
from typing import Any

from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.embedded.sim.world import DEPLOYMENTS, STATEFUL_SETS
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa, make_stateful_set
from simulated.autoscaling import HPAS, autoscaler
from simulated.cluster import events, pods, run

Raw = dict[str, Any]

WIDGETS: Raw = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


def external(name: str, *, average: str | None = None, value: str | None = None) -> Raw:
    target: Raw = {"type": "AverageValue", "averageValue": average} if average else {"type": "Value", "value": value}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def test_a_custom_resource_with_a_scale_is_scaled() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(WIDGETS)
        await cluster.apply(
            {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "w", "namespace": "default"},
                "spec": {"replicas": 2, "colour": "blue"},
                "status": {"replicas": 2, "selector": "app=w"},
            }
        )
        client = cluster.client()
        body = b'{"status": {"replicas": 2, "selector": "app=w"}}'
        path = "/apis/example.com/v1/namespaces/default/widgets/w/status"
        await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        # Any version of the group will do in the reference.
        autoscaled = make_hpa(
            "w", target="w", kind="Widget", api_version="example.com/v9", metrics=[external("queue", average="10")]
        )
        await cluster.apply(autoscaled)
        cluster.metrics.set_external_metric("default", "queue", 65.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))
            widgets = ResourceKey("example.com", "widgets")
            stored = cluster.world.get(widgets, StoreKey("default", "w"))
            assert stored is not None
            assert stored["spec"] == {"replicas": 7, "colour": "blue"}
            assert running.condition("default", "w", "ScalingActive") == ("True", "ValidMetricFound")

    run(main, nodes=1)


def test_a_stateful_set_is_scaled_by_memory() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_stateful_set("db", replicas=2, cpu="100m", memory="256Mi"))
        metric = {
            "type": "Resource",
            "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}},
        }
        await cluster.apply(make_hpa("db", target="db", kind="StatefulSet", maximum=6, metrics=[metric]))
        cluster.set_usage("default", "db", cpu="10m", memory="180Mi")
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "db", STATEFUL_SETS) == 6
            current = running.status("default", "db")["currentMetrics"][0]["resource"]["current"]
            assert set(current) == {"averageValue"}

    run(main, nodes=2)


def test_pods_and_object_metrics_are_followed() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="64Mi"))
        await cluster.apply(make_deployment("api", replicas=2, cpu="100m", memory="64Mi"))
        rate = {
            "type": "Pods",
            "pods": {
                "metric": {"name": "requests_per_second"},
                "target": {"type": "AverageValue", "averageValue": "20"},
            },
        }
        hits = {
            "type": "Object",
            "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
                "metric": {"name": "hits"},
                "target": {"type": "Value", "value": "100"},
            },
        }
        await cluster.apply(make_hpa("web", maximum=10, metrics=[rate]))
        await cluster.apply(make_hpa("api", target="api", maximum=10, metrics=[hits]))
        cluster.set_load("default", "web", 120.0)
        cluster.metrics.set_object_metric("services", "default", "front", "hits", 250.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=4))
            assert running.condition("default", "api", "ScalingActive") == ("True", "ValidMetricFound")
            assert running.replicas("default", "api") == 10
            assert running.replicas("default", "web") == 6

    run(main, nodes=3)


def test_scale_to_zero_and_back() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("worker", replicas=2, cpu="50m", memory="32Mi"))
        autoscaled = make_hpa("worker", target="worker", minimum=1, metrics=[external("queue", average="10")])
        await cluster.apply(autoscaled)
        # The API server admits a minimum of zero behind a gate only; what is stored already is kept.
        stored = cluster.world.get(HPAS, StoreKey("default", "worker"))
        assert stored is not None
        cluster.world.put_spec(HPAS, stored, {**stored["spec"], "minReplicas": 0})
        curve = Step(((0.0, 15.0), (300.0, 0.0), (1200.0, 35.0)))
        cluster.metrics.set_external_metric("default", "queue", curve)
        async with autoscaler(cluster) as running:
            sizes = await running.follow(timedelta(minutes=30), "default", "worker")
        assert [size for _, size in sizes] == [2, 0, 4]
        # The last turn that saw a queue was up to one sync period before it emptied.
        assert 585 <= sizes[1][0] <= 660
        assert 1200 <= sizes[2][0] <= 1240

    run(main, nodes=1)


def test_a_target_switched_off_by_hand_is_left_alone() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=0, cpu="50m"))
        await cluster.apply(make_hpa("web", minimum=2, metrics=[external("queue", average="1")]))
        cluster.metrics.set_external_metric("default", "queue", 9.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") == 0
            assert running.condition("default", "web", "ScalingActive") == ("False", "ScalingDisabled")

    run(main, nodes=1)


def test_two_autoscalers_over_one_workload_stop_until_one_is_gone() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        for name in ("one", "two"):
            await cluster.apply(make_hpa(name, target="web", metrics=[external("queue", average="1")]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            cluster.metrics.set_external_metric("default", "queue", 6.0)
            await cluster.run_for(timedelta(minutes=2))
            for name in ("one", "two"):
                assert running.condition("default", name, "ScalingActive") == ("False", "AmbiguousSelector")
            size = running.replicas("default", "web")
            cluster.metrics.set_external_metric("default", "queue", float(size + 3))
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == size
            message = running.status("default", "one")["conditions"][1]["message"]
            assert "default/one, default/two" in message
            await cluster.world.delete(HPAS, StoreKey("default", "two"))
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == size + 3
            assert running.condition("default", "one", "ScalingActive") == ("True", "ValidMetricFound")
            # The status of a quiet autoscaler is not written again and again.
            assert running.requests.counts["status"] < 40

    run(main, nodes=1)


def test_two_workloads_with_the_same_labels_are_ambiguous_too() -> None:
    async def main(cluster: SimCluster) -> None:
        for name in ("a", "b"):
            made = make_deployment(name, replicas=1, cpu="50m", memory="32Mi", labels={"app": "same"})
            made["spec"]["selector"] = {"matchLabels": {"app": "same"}}
            await cluster.apply(made)
            await cluster.apply(make_hpa(name, target=name, metrics=[external("queue", average="1")]))
        cluster.metrics.set_external_metric("default", "queue", 1.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert events(cluster, reason="AmbiguousSelector")
            assert running.condition("default", "b", "ScalingActive") == ("False", "AmbiguousSelector")

    run(main, nodes=1)


def roll_out(*, aware: bool) -> tuple[list[int], int]:
    """Roll out a deployment with a large surge whose new pods burn CPU while they start."""

    async def main(cluster: SimCluster) -> tuple[list[int], int]:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
        made = make_deployment("web", replicas=4, cpu="500m", memory="64Mi", strategy=strategy)
        await cluster.apply(made)
        await cluster.apply(make_hpa("web", minimum=2, maximum=20, cpu_percent=50))
        cluster.set_load("default", "web", 95.0)
        async with autoscaler(cluster, HpaSettings(rollout_aware=aware)) as running:
            await cluster.run_for(timedelta(minutes=8))
            before = running.replicas("default", "web")
            template = made["spec"]["template"]
            template["metadata"]["annotations"] = {"version": "2"}
            stored = cluster.world.get(DEPLOYMENTS, StoreKey("default", "web"))
            assert stored is not None
            cluster.world.put_spec(DEPLOYMENTS, stored, {**stored["spec"], "template": template})
            sizes = await running.follow(timedelta(minutes=10), "default", "web")
            assert len(pods(cluster, app="web")) == running.replicas("default", "web")
            return [size for _, size in sizes], before

    return run(main, nodes=4)


def test_a_rolling_update_does_not_upset_the_size() -> None:
    for aware in (False, True):
        sizes, before = roll_out(aware=aware)
        assert max(sizes) <= before + 1
        assert min(sizes) >= before - 1


def test_a_deleted_autoscaler_is_forgotten() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("web", metrics=[external("queue", average="1")]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.controller.explain("hpa", "default/web") is not None
            await cluster.world.delete(HPAS, StoreKey("default", "web"))
            await cluster.run_for(timedelta(minutes=1))
            assert running.controller.explain("hpa", "default/web") is None
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            await cluster.run_for(timedelta(minutes=1))
            assert running.counted("horizontal_pod_autoscaler_controller_reconciliations_total") == turns

    run(main, nodes=1)


def test_the_gauges_of_newer_releases_follow_what_stands_and_go_with_their_autoscaler() -> None:
    async def main(cluster: SimCluster) -> None:
        for name in ("web", "api"):
            await cluster.apply(make_deployment(name, replicas=2, cpu="50m", memory="32Mi"))
            await cluster.apply(
                make_hpa(name, target=name, maximum=5, metrics=[external(f"queue-{name}", average="1")])
            )
            cluster.metrics.set_external_metric("default", f"queue-{name}", 2.0)
        async with autoscaler(cluster) as running:

            def gauges() -> tuple[float, list[tuple[str, float]]]:
                prefix = "horizontal_pod_autoscaler_controller"
                found = (sample for family in running.telemetry.registry.collect() for sample in family.samples)
                sizes = [(s.labels["hpa_name"], s.value) for s in found if s.name == f"{prefix}_desired_replicas"]
                return running.counted(f"{prefix}_num_horizontal_pod_autoscalers"), sorted(sizes)

            await cluster.run_for(timedelta(minutes=1))
            assert gauges() == (2, [("api", 2), ("web", 2)]), "also where nothing was scaled"
            cluster.metrics.set_external_metric("default", "queue-web", 4.0)
            await cluster.run_for(timedelta(minutes=1))
            assert gauges() == (2, [("api", 2), ("web", 4)])
            await cluster.world.delete(DEPLOYMENTS, StoreKey("default", "web"))
            await cluster.run_for(timedelta(minutes=1))
            assert gauges() == (2, [("api", 2), ("web", 4)]), "a reconcile that ends early leaves it"
            await cluster.world.delete(HPAS, StoreKey("default", "web"))
            await cluster.run_for(timedelta(minutes=1))
            assert gauges() == (1, [("api", 2)])

    run(main, nodes=1)


def test_one_of_the_same_name_made_at_once_inherits_the_memory() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        made = make_hpa("web", metrics=[external("queue", average="1")])
        await cluster.apply(made)
        cluster.metrics.set_external_metric("default", "queue", 4.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 4
            cluster.metrics.set_external_metric("default", "queue", 1.0)
            await cluster.run_for(timedelta(minutes=3))
            await cluster.world.delete(HPAS, StoreKey("default", "web"))
            await cluster.apply(made)
            # A new one would hold the size for five minutes; this one knows for how long less is wanted already.
            await cluster.run_for(timedelta(minutes=2.5))
            assert running.replicas("default", "web") == 1

    run(main, nodes=1)


def test_an_unknown_kind_is_told() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_hpa("ghost", kind="Gadget", api_version="example.com/v1", cpu_percent=50))
        await cluster.apply(make_hpa("missing", target="missing", cpu_percent=50))
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            for name in ("ghost", "missing"):
                assert running.condition("default", name, "AbleToScale") == ("False", "FailedGetScale")
            assert events(cluster, reason="FailedGetScale", name="ghost")

    run(main, nodes=1)
