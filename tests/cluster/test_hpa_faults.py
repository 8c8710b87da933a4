"""What goes wrong in a cluster: metrics away, refused writes, broken connections, answers that cannot be true."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubetide.api.objects.scheme import HPAS
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.errors import Unavailable
from kubetide.hpa.scale_writer import ATTEMPTS
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.transport import Response
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import HPAS as HPA_KEY
from simulated.autoscaling import Running, autoscaler
from simulated.cluster import events, pods, run

Raw = dict[str, Any]

RECONCILES = "horizontal_pod_autoscaler_controller_reconciliations_total"
QUEUE: Raw = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


def answer(body: Any, status: int = 200) -> Response:
    return Response(status=status, headers={}, body=body if isinstance(body, bytes) else msgspec.json.encode(body))


def refusal(status: int, reason: str) -> Response:
    return answer({"kind": "Status", "code": status, "reason": reason, "message": f"made up: {reason}"}, status)


async def web(cluster: SimCluster, replicas: int = 4, load: float = 90.0, **arguments: Any) -> None:
    await cluster.apply(make_deployment("web", replicas=replicas, cpu="500m", memory="64Mi"))
    arguments.setdefault("cpu_percent", 50)
    await cluster.apply(make_hpa("web", maximum=20, **arguments))
    cluster.set_load("default", "web", load)


def test_an_outage_of_the_metrics_neither_shrinks_nor_grows() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster)
        cluster.set_load("default", "web", Step(((0.0, 90.0), (600.0, 10.0))))
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=8))
            assert running.replicas("default", "web") == 4
            with cluster.outage("metrics"):
                await cluster.run_for(timedelta(minutes=20))
                assert running.replicas("default", "web") == 4
                assert running.condition("default", "web", "ScalingActive") == ("False", "FailedGetResourceMetric")
                assert events(cluster, reason="FailedComputeMetricsReplicas", name="web")
                desired = running.status("default", "web")["desiredReplicas"]
                assert desired == 4
            await cluster.run_for(timedelta(minutes=8))
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")
            assert running.replicas("default", "web") == 1

    run(main, nodes=3)


def test_a_conflict_is_tried_again_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        refused: list[str] = []

        def conflict(method: str, path: str) -> Response | None:
            if method == "PUT" and path.endswith("/scale") and len(refused) < ATTEMPTS - 1:
                refused.append(path)
                return refusal(409, "Conflict")
            return None

        async with autoscaler(cluster, interfere=conflict) as running:
            await cluster.wait_for(lambda: running.replicas("default", "web") > 2)
            assert len(refused) == ATTEMPTS - 1
            assert running.condition("default", "web", "AbleToScale") == ("True", "SucceededRescale")
            assert not events(cluster, reason="FailedRescale", name="web")

    run(main, nodes=4)


def test_a_lasting_conflict_is_reported_and_tried_again_in_the_next_reconcile() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        refused: list[str] = []

        def conflict(method: str, path: str) -> Response | None:
            if method == "PUT" and path.endswith("/scale") and len(refused) < 2 * ATTEMPTS:
                refused.append(path)
                return refusal(409, "Conflict")
            return None

        async with autoscaler(cluster, interfere=conflict) as running:
            await cluster.wait_for(lambda: len(refused) == 2 * ATTEMPTS)
            assert running.condition("default", "web", "AbleToScale") == ("False", "FailedUpdateScale")
            assert running.replicas("default", "web") == 2
            await cluster.run_for(timedelta(minutes=3))
            assert running.replicas("default", "web") >= 8
            assert running.condition("default", "web", "AbleToScale")[0] == "True"
            assert events(cluster, reason="FailedRescale", name="web")
            assert running.counted(RECONCILES, error="internal") >= 2

    run(main, nodes=4)


def test_a_status_that_cannot_be_written_stops_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)

        def interfere(method: str, path: str) -> Response | None:
            return refusal(500, "InternalError") if path.endswith("/status") else None

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=4))
            assert running.replicas("default", "web") >= 8
            assert events(cluster, reason="FailedUpdateStatus", name="web")

    run(main, nodes=4)


def test_a_scale_that_somebody_else_changes_in_between_is_not_overwritten() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        client = cluster.client()
        meddled: list[int] = []

        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=20))

            def interfere(method: str, path: str) -> Response | None:
                if method == "PUT" and path.endswith("/scale") and not meddled:
                    meddled.append(1)
                    # What was read is older than what is stored now: the server must refuse.
                    stored = cluster.world.all(DEPLOYMENTS)[0]
                    cluster.world.put_spec(DEPLOYMENTS, stored, {**stored["spec"], "replicas": 3})
                return None

            running.requests.interfere = interfere
            await cluster.wait_for(lambda: bool(meddled))
            await cluster.run_for(timedelta(seconds=1))
            assert running.replicas("default", "web") == 3
            assert running.condition("default", "web", "AbleToScale") == ("False", "FailedUpdateScale")
            await client.close()

    run(main, nodes=4)


def test_a_namespace_that_may_not_be_listed_is_asked_per_target() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        selected: list[str] = []

        async with autoscaler(cluster) as running:
            inner = running.requests._inner.request

            async def request(method: str, path: str, **parts: Any) -> Response:
                if path.startswith("/apis/metrics.k8s.io/"):
                    if not (parts.get("query") or {}).get("labelSelector"):
                        return refusal(403, "Forbidden")
                    selected.append(path)
                return await inner(method, path, **parts)

            running.requests._inner.request = request  # type: ignore[method-assign]
            await cluster.run_for(timedelta(minutes=3))
            assert running.replicas("default", "web") >= 8
            assert selected

    run(main, nodes=4)


def test_a_lost_connection_is_a_failure_of_the_reconcile_only() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        down = [True]

        def interfere(method: str, path: str) -> Exception | None:
            return Unavailable("connection refused") if down[0] and path.endswith("/scale") else None

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") == 2
            assert running.condition("default", "web", "AbleToScale") == ("False", "FailedGetScale")
            down[0] = False
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") >= 8

    run(main, nodes=4)


def test_an_error_that_nobody_thought_of_is_counted_and_stops_nobody_else() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=200.0)
        await cluster.apply(make_deployment("other", replicas=2, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("other", target="other", metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 5.0)

        def interfere(method: str, path: str) -> Exception | None:
            return ZeroDivisionError("nobody thought of this") if path.endswith("/web/scale") else None

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") == 2
            assert running.replicas("default", "other") == 5
            turns = "horizontal_pod_autoscaler_controller_reconciliations_total"
            assert 5 <= running.counted(turns, action="none", error="internal") <= 10
            running.requests.interfere = None
            await cluster.run_for(timedelta(minutes=2))
            assert running.replicas("default", "web") >= 8

    run(main, nodes=4)


def usage(cluster: SimCluster, amount: Callable[[int], Any], **item: Any) -> Raw:
    """Return a list of usage for the pods there are."""
    items = [
        {
            "metadata": {"name": pod["metadata"]["name"], "namespace": "default", "labels": {"app": "web"}},
            "timestamp": cluster.clock.now().isoformat(),
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": amount(number), "memory": "1Mi"}}],
            **item,
        }
        for number, pod in enumerate(pods(cluster, app="web"))
    ]
    return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}


def first(value: Any) -> Callable[[int], Any]:
    """The first pod has this usage, the others are idle."""
    return lambda number: value if number == 0 else "1m"


HUGE = b'{"items": [' + b'{"metadata": {"name": "x"}},' * 4_000_000 + b"null]}"
FLOOD = {f"label-{number}": "x" * 60 for number in range(20_000)}


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        pytest.param(lambda c: usage(c, first("NaN")), "InvalidMetricValue", id="not-a-number"),
        pytest.param(lambda c: usage(c, first("+Inf")), "InvalidMetricValue", id="infinity"),
        pytest.param(lambda c: usage(c, first("-5")), "InvalidMetricValue", id="negative"),
        pytest.param(lambda c: usage(c, first("1e308")), "InvalidMetricValue", id="beyond-64-bits"),
        pytest.param(lambda c: usage(c, first("-1e308")), "InvalidMetricValue", id="beyond-64-bits-below"),
        pytest.param(lambda c: usage(c, first("twelve")), "FailedGetResourceMetric", id="words"),
        pytest.param(lambda c: usage(c, first(True)), "FailedGetResourceMetric", id="wrong-type"),
        pytest.param(lambda c: usage(c, first([1])), "FailedGetResourceMetric", id="a-list"),
        pytest.param(
            lambda c: usage(c, first("1m"), timestamp="2999-01-01T00:00:00Z"), "InvalidMetricValue", id="the-future"
        ),
        pytest.param(
            lambda c: usage(c, first("1m"), timestamp=(c.clock.now() - timedelta(days=1)).isoformat()),
            "InvalidMetricStale",
            id="a-day-old",
        ),
        pytest.param(
            lambda c: {"items": [*usage(c, first("1m"))["items"], *usage(c, first("2m"))["items"]]},
            "InvalidMetricValue",
            id="every-pod-twice",
        ),
        pytest.param(lambda c: b'{"items": [{"containers": [{"usage": {"cpu": NaN}}]}]}', "Failed", id="bad-json"),
        pytest.param(lambda c: b"\x00\xff" * 100, "Failed", id="no-json-at-all"),
        pytest.param(lambda c: b"[" * 100_000, "Failed", id="deep-nesting"),
        pytest.param(lambda c: HUGE, "FailedGetResourceMetric", id="a-hundred-megabytes"),
        pytest.param(lambda c: {"items": []}, "FailedGetResourceMetric", id="empty"),
        pytest.param(lambda c: {"items": None}, "FailedGetResourceMetric", id="null"),
        pytest.param(lambda c: [], "FailedGetResourceMetric", id="a-list-instead-of-an-object"),
    ],
)
def test_a_hostile_answer_is_named_and_never_shrinks_the_target(
    hostile: Callable[[SimCluster], Any], reason: str
) -> None:
    async def main(cluster: SimCluster) -> None:
        behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        await web(cluster, behavior=behavior)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=7))
            assert running.replicas("default", "web") == 4

            def interfere(method: str, path: str) -> Response | None:
                return answer(hostile(cluster)) if path.startswith("/apis/metrics.k8s.io/") else None

            running.requests.interfere = interfere
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "web") == 4
            status, found = running.condition("default", "web", "ScalingActive")
            assert status == "False"
            assert found.startswith(reason)

    run(main, nodes=3)


TWICE = [{"name": "main", "usage": {"cpu": "225m"}}, {"name": "main", "usage": {"cpu": "225m"}}]


def one_pod_twice(cluster: SimCluster) -> Raw:
    """The first pod has its container twice, the others are as busy as they should be."""
    listed = usage(cluster, lambda number: "225m")
    listed["items"][0]["containers"] = TWICE
    return listed


@pytest.mark.parametrize(
    ("hostile", "reason", "named"),
    [
        pytest.param(
            lambda c: usage(c, lambda number: "5000" if number == 0 else "225m"), "above_node", " has ", id="impossible"
        ),
        pytest.param(one_pod_twice, "duplicate_container", "container main more than once", id="a-container-twice"),
    ],
)
def test_a_sample_that_cannot_be_true_counts_as_missing(
    hostile: Callable[[SimCluster], Any], reason: str, named: str
) -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=7))

            def interfere(method: str, path: str) -> Response | None:
                return answer(hostile(cluster)) if path.startswith("/apis/metrics.k8s.io/") else None

            running.requests.interfere = interfere
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "web") == 4
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")
            assert running.counted("kubetide_hpa_refused_samples_total", reason=reason) > 10
            (told,) = {event["message"] for event in events(cluster, reason="InvalidMetricValue", name="web")}
            assert named in told
            assert pods(cluster, app="web")[0]["metadata"]["name"] in told

    run(main, nodes=3)


def test_without_the_permission_to_read_nodes_usage_has_no_bound() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster)

        def interfere(method: str, path: str) -> Response | None:
            if path == "/api/v1/nodes":
                return refusal(403, "Forbidden")
            return answer(usage(cluster, first("5000"))) if path.startswith("/apis/metrics.k8s.io/") else None

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=7))
            assert running.replicas("default", "web") > 4
            assert running.counted("kubetide_hpa_refused_samples_total") == 0

    run(main, nodes=3)


def test_a_flood_of_labels_changes_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=7))

            def interfere(method: str, path: str) -> Response | None:
                if not path.startswith("/apis/metrics.k8s.io/"):
                    return None
                flooded = usage(cluster, lambda number: "225m")
                for item in flooded["items"]:
                    item["metadata"]["labels"] = {**FLOOD, "app": "web"}
                return answer(flooded)

            running.requests.interfere = interfere
            await cluster.run_for(timedelta(seconds=40))
            assert running.replicas("default", "web") == 4
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")

    run(main, nodes=3)


@pytest.mark.parametrize("value", ["NaN", "-3", "1e308", "Infinity"])
def test_a_hostile_external_metric_never_shrinks_the_target(value: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, cpu_percent=None, metrics=[QUEUE], behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
        cluster.metrics.set_external_metric("default", "queue", 4.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))

            def interfere(method: str, path: str) -> Response | None:
                if not path.startswith("/apis/external.metrics.k8s.io/"):
                    return None
                item = {"metricName": "queue", "value": value, "timestamp": cluster.clock.now().isoformat()}
                return answer({"items": [item]})

            running.requests.interfere = interfere
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "web") == 4
            assert running.condition("default", "web", "ScalingActive") == ("False", "InvalidMetricValue")
            running.requests.interfere = None
            await cluster.run_for(timedelta(minutes=1))
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")

    run(main, nodes=3)


def test_a_metrics_api_that_hangs_is_given_up() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster)
        await cluster.apply(make_deployment("other", replicas=2, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("other", target="other", metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 5.0)

        async with autoscaler(cluster, HpaSettings(metrics_timeout=timedelta(seconds=10))) as running:
            inner = running.requests._inner.request

            async def request(method: str, path: str, **parts: Any) -> Response:
                if path.startswith("/apis/metrics.k8s.io/"):
                    await cluster.run_for(timedelta(hours=1))
                return await inner(method, path, **parts)

            running.requests._inner.request = request  # type: ignore[method-assign]
            await cluster.run_for(timedelta(minutes=2))
            assert running.condition("default", "web", "ScalingActive") == ("False", "FailedGetResourceMetric")
            assert running.replicas("default", "other") == 5

    run(main, nodes=3)


def test_an_annotation_that_cannot_be_understood_is_told_once() -> None:
    async def main(cluster: SimCluster) -> Running:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        made = make_hpa("web", metrics=[QUEUE])
        made["metadata"]["annotations"] = {"kubetide.io/hpa-sync-period": "often"}
        await cluster.apply(made)
        cluster.metrics.set_external_metric("default", "queue", 5.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=3))
            assert running.replicas("default", "web") == 5
            told = events(cluster, reason="InvalidAnnotation", name="web")
            assert len(told) == 1
            assert told[0].get("count", 1) == 1
            return running

    run(main, nodes=1)


def test_a_cache_that_lags_behind_does_not_make_it_act_on_its_own_past() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("web", maximum=20, metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            # From here on no change reaches the cache: neither its own status writes nor anything else.
            cluster.api.faults.resources = frozenset({"horizontalpodautoscalers"})
            cluster.api.faults.dropped = 1.0
            for size in (4.0, 6.0, 8.0, 12.0):
                cluster.metrics.set_external_metric("default", "queue", size)
                # One sync period more than usual: it waits for its own write to show before it decides without.
                await cluster.run_for(timedelta(seconds=60))
                assert running.replicas("default", "web") == int(size)
                assert running.status("default", "web")["currentReplicas"] == int(size)
            assert not events(cluster, reason="FailedUpdateStatus")
            rescales = [line for line in running.requests.writes if line.endswith("/scale")]
            assert len(rescales) == 4

    run(main, nodes=1)


def test_one_answer_of_the_metrics_never_scales_twice() -> None:
    async def main(cluster: SimCluster) -> None:
        await web(cluster, replicas=2, load=400.0)
        async with autoscaler(cluster, HpaSettings(sync_period=timedelta(seconds=15))) as running:
            await cluster.run_for(timedelta(seconds=40))
            before = len([line for line in running.requests.writes if line.endswith("/scale")])
            asked = running.requests.counts["metrics"]
            # Reconciles that are asked for in a row do not reuse what was seen before.
            for number in range(3):
                made = make_hpa("web", maximum=30 + number, cpu_percent=50)
                await cluster.apply(made)
                await cluster.run_for(timedelta(seconds=1))
            assert running.requests.counts["metrics"] - asked >= 3
            after = len([line for line in running.requests.writes if line.endswith("/scale")])
            assert after - before <= 3

    run(main, nodes=6)


def test_an_autoscaler_that_is_deleted_while_it_is_decided_about_scales_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        await cluster.apply(make_hpa("web", maximum=9, metrics=[QUEUE]))
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=40))
            cluster.metrics.set_external_metric("default", "queue", 8.0)
            ask = running.requests.request

            async def deleting(method: str, path: str, **options: Any) -> Response:
                if "/external.metrics" in path:
                    await cluster.client().delete(HPAS, "web", namespace="default")
                    await asyncio.sleep(1)
                return await ask(method, path, **options)

            running.requests.request = deleting  # type: ignore[method-assign]
            await cluster.run_for(timedelta(minutes=1))
            assert running.replicas("default", "web") == 2

    run(main, nodes=1)


def test_a_period_of_its_own_is_kept_where_proposed_fields_are_honoured() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="50m", memory="32Mi"))
        hpa = make_hpa("web", maximum=9, metrics=[QUEUE])
        cluster.metrics.set_external_metric("default", "queue", 2.0)
        await cluster.apply(hpa)
        stored = cluster.world.get(HPA_KEY, StoreKey("default", "web"))
        assert stored is not None
        # As an API server that knows the field would keep it.
        cluster.world.put_spec(HPA_KEY, stored, {**stored["spec"], "syncPeriodSeconds": 60})
        asked = {}
        for honoured in (True, False):
            async with autoscaler(cluster, HpaSettings(proposed_fields=honoured)) as running:
                await cluster.run_for(timedelta(minutes=10))
                asked[honoured] = running.requests.counts["external"]
        assert 8 <= asked[True] <= 12 < 30 <= asked[False]

    run(main, nodes=1)
