"""Beside kube-controller-manager: look and do not act, unless told to."""

from datetime import timedelta
from typing import Any

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.errors import api_error
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import HPAS, autoscaler
from simulated.cluster import events, get, run

Raw = dict[str, Any]

QUEUE: Raw = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def prepare(cluster: SimCluster, *, annotations: dict[str, str] | None = None) -> None:
    await cluster.apply(make_deployment("web", replicas=2, cpu="10m", memory="16Mi"))
    made = make_hpa("web", metrics=[QUEUE])
    if annotations:
        made["metadata"]["annotations"] = annotations
    await cluster.apply(made)
    cluster.metrics.set_external_metric("default", "queue", 5.0)


async def hold_lease(cluster: SimCluster, seconds: int = 3600) -> None:
    stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    await cluster.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
            "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": seconds, "renewTime": stamp},
        }
    )


def test_it_looks_and_does_not_act_while_the_built_in_controller_runs() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        await hold_lease(cluster, seconds=300)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=3))
            assert running.replicas("default", "web") == 2
            assert running.requests.writes == []
            trace = running.controller.explain("hpa", "default/web")
            assert trace is not None
            assert (trace["acts"], trace["desired"]) == (False, 4)
            assert "kube-controller-manager" in trace["stance"]
            told = events(cluster, reason="BuiltInControllerActive", name="web")
            assert len(told) == 1
            assert "--take-over" in told[0]["message"]
            assert running.counted("kubetide_hpa_desired_replicas", name="web") == 4
            assert running.counted("kubetide_hpa_acting", name="web") == 0
            (note,) = running.controller.notes()
            assert note.startswith("1 of 1 autoscalers: looks and does not act: the built-in controller is at work")
            assert "--take-over" in note
            # The lease runs out: nobody else is there, so it acts without being asked.
            await cluster.run_for(timedelta(minutes=4))
            assert running.replicas("default", "web") == 5
            assert running.controller.notes() == ()

    run(main, nodes=1)


def test_a_sign_that_appears_stops_it_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 5
            await hold_lease(cluster)
            await cluster.run_for(timedelta(seconds=6))
            cluster.metrics.set_external_metric("default", "queue", 9.0)
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") == 5

    run(main, nodes=1)


def test_it_takes_over_when_told_to() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        await hold_lease(cluster)
        async with autoscaler(cluster, HpaSettings(take_over=True)) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 5
            assert not events(cluster, reason="BuiltInControllerActive")

    run(main, nodes=1)


def test_one_object_can_be_given_to_it_or_kept_from_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, annotations={"kubetide.io/managed-by": "kubetide"})
        await cluster.apply(make_deployment("other", replicas=2, cpu="10m", memory="16Mi"))
        kept = make_hpa("other", target="other", metrics=[QUEUE])
        kept["metadata"]["annotations"] = {"kubetide.io/managed-by": "somebody"}
        await cluster.apply(kept)
        await hold_lease(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 5
            assert running.replicas("default", "other") == 2

    run(main, nodes=1)


def test_a_fight_is_told_but_goes_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster, HpaSettings(take_over=True)) as running:
            for number in range(6):
                body = b'{"status": {"desiredReplicas": %d}}' % number
                path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
                await cluster.client().request(
                    "PATCH",
                    path,
                    query={"fieldManager": "kube-controller-manager"},
                    body=body,
                    content_type="application/merge-patch+json",
                )
                await cluster.run_for(timedelta(seconds=15))
            assert running.replicas("default", "web") == 5
            assert len(events(cluster, reason="BuiltInControllerActive", name="web")) == 1
            assert running.counted("kubetide_hpa_built_in_controller_conflicts_total") >= 2
            assert "the built-in controller writes too" in running.controller.notes()[0]

    run(main, nodes=1)


def test_a_scale_that_the_built_in_controller_wrote_lately_is_not_touched() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        path, client = "/apis/apps/v1/namespaces/default/deployments/web", cluster.client()
        # The embedded server notes the writers of a workload only from its first server-side apply on.
        applied = b'{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"team": "red"}}}'
        for part, manager, form, body in (
            ("", "somebody", "application/apply-patch+yaml", applied),
            ("/scale", "kube-controller-manager", "application/merge-patch+json", b'{"spec": {"replicas": 3}}'),
        ):
            await client.request("PATCH", path + part, query={"fieldManager": manager}, body=body, content_type=form)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=40))
            assert running.replicas("default", "web") == 3
            assert running.requests.writes == []
            (told,) = events(cluster, reason="BuiltInControllerActive", name="web")
            assert "wrote the scale of Deployment web lately" in told["message"]
            # Three sync periods after its last write nobody else is there any more.
            await cluster.run_for(timedelta(seconds=40))
            assert running.replicas("default", "web") == 5

    run(main, nodes=1)


def test_not_even_the_status_is_written_after_the_built_in_controller_scaled() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        path, client = "/apis/apps/v1/namespaces/default/deployments/web", cluster.client()
        status = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
        applied = b'{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"team": "red"}}}'
        merge = "application/merge-patch+json"

        async def patch(where: str, manager: str, body: bytes, form: str = merge) -> None:
            await client.request("PATCH", where, query={"fieldManager": manager}, body=body, content_type=form)

        await patch(path, "somebody", applied, "application/apply-patch+yaml")
        await patch(status, "kube-controller-manager", b'{"status": {"desiredReplicas": 2}}')
        await cluster.run_for(timedelta(minutes=2))
        # It sets the size that is wanted here too, and its write of the status is lost: there is nothing to rescale.
        await patch(f"{path}/scale", "kube-controller-manager", b'{"spec": {"replicas": 5}}')
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=40))
            assert running.requests.writes == []
            assert len(events(cluster, reason="BuiltInControllerActive", name="web")) == 1
            await cluster.run_for(timedelta(seconds=40))
            assert running.status("default", "web")["currentReplicas"] == 5

    run(main, nodes=1)


def test_a_lease_that_may_not_be_read_counts_as_held() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)

        def interfere(method: str, path: str) -> Exception | None:
            if path.endswith("/leases/kube-controller-manager"):
                return api_error(403, reason="Forbidden", message="not yours to read")
            return None

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 2
            assert "cannot be read" in events(cluster, reason="BuiltInControllerActive")[0]["message"]

    run(main, nodes=1)


def test_a_dry_run_writes_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, annotations={"kubetide.io/hpa-dry-run": "true"})
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert running.requests.writes == []
            assert running.replicas("default", "web") == 2
            assert running.counted("kubetide_hpa_desired_replicas", name="web") == 4
            # Taking the annotation away is handled at once.
            await cluster.apply(make_hpa("web", metrics=[QUEUE]))
            await cluster.run_for(timedelta(seconds=1))
            assert running.replicas("default", "web") == 4

    run(main, nodes=1)


def test_an_object_may_have_its_own_sync_period() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, annotations={"kubetide.io/hpa-sync-period": "2s"})
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            assert 50 <= turns <= 70

    run(main, nodes=1)


def test_a_fallback_count_stands_in_for_a_metric_that_fails() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, annotations={"kubetide.io/hpa-fallback": "7"})
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 5
            with cluster.outage("metrics"):
                await cluster.run_for(timedelta(minutes=1))
                assert running.replicas("default", "web") == 7
                assert events(cluster, reason="FailedGetExternalMetric", name="web")

    run(main, nodes=1)


def test_writes_carry_the_field_manager_and_telemetry_the_upstream_names() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            managed = get(cluster, HPAS, "default", "web")["metadata"].get("managedFields") or []
            assert "kubetide-hpa" in {entry["manager"] for entry in managed}
            text = running.telemetry.render().decode()
            for name in (
                'horizontal_pod_autoscaler_controller_reconciliations_total{action="scale_up",error="none"}',
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket",
                'horizontal_pod_autoscaler_controller_metric_computation_total{action="scale_up"',
                "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_bucket",
                'workqueue_depth{name="horizontalpodautoscaler"}',
                'workqueue_adds_total{name="horizontalpodautoscaler"}',
                'workqueue_queue_duration_seconds_bucket{le="1e-08",name="horizontalpodautoscaler"}',
                "workqueue_unfinished_work_seconds",
                "workqueue_longest_running_processor_seconds",
                "workqueue_retries_total",
            ):
                assert name in text, name
            queue = {"name": "horizontalpodautoscaler"}
            adds = running.counted("workqueue_adds_total", **queue)
            assert adds == running.counted("workqueue_retries_total", **queue) > 0

    run(main, nodes=1)
