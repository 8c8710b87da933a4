"""Load that steps, ramps and spikes, followed in virtual time."""

from datetime import timedelta
from itertools import pairwise

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Curve, Ramp, Spike, Step
from kubetide.hpa.settings import HpaSettings, MetricsScope
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Running, autoscaler
from simulated.cluster import events, ready_pods, run

Sizes = list[tuple[float, int]]


def sizes_under(
    curve: Curve, minutes: int, *, replicas: int = 2, behavior: dict[str, object] | None = None
) -> tuple[Sizes, Running]:
    """Run a web deployment of 500m pods at 50 % CPU under a load; a request costs 10m."""

    async def main(cluster: SimCluster) -> tuple[Sizes, Running]:
        await cluster.apply(make_deployment("web", replicas=replicas, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50, behavior=behavior))
        cluster.set_load("default", "web", curve)
        async with autoscaler(cluster) as running:
            return await running.follow(timedelta(minutes=minutes), "default", "web"), running

    return run(main, nodes=6)


def size_at(sizes: Sizes, second: float) -> int:
    return [size for at, size in sizes if at <= second][-1]


def test_a_step_of_load_is_followed_up_and_down() -> None:
    sizes, running = sizes_under(Step(((600.0, 200.0), (1800.0, 20.0)), initial=20.0), 60)
    assert size_at(sizes, 599) == 2
    # 200 requests of 10m are 2 cores, at 250m a pod 8 pods, plus what idling pods use.
    assert 8 <= size_at(sizes, 900) <= 10
    assert size_at(sizes, 1800 + 290) == size_at(sizes, 1799)
    assert size_at(sizes, 1800 + 420) == 2
    assert running.status("default", "web")["desiredReplicas"] == 2


def test_growth_is_in_steps_of_double_or_four() -> None:
    sizes, _ = sizes_under(Step(((120.0, 400.0),), initial=20.0), 15)
    for (_, before), (_, after) in pairwise(sizes):
        assert after <= max(2 * before, 4)


def test_a_ramp_is_followed_without_going_back() -> None:
    sizes, _ = sizes_under(Ramp(20.0, 300.0, 300.0, 1800.0), 45)
    counts = [size for _, size in sizes]
    assert counts == sorted(counts)
    # 3 cores over 11 pods are 54 %, within the tolerance of the 50 % asked for.
    assert 11 <= counts[-1] <= 14
    # About in step with the load: at two thirds of the ramp two thirds of the pods are there.
    assert size_at(sizes, 300 + 1200) >= 7


def test_a_spike_is_answered_and_held_for_the_window() -> None:
    sizes, _ = sizes_under(Spike(20.0, 250.0, 600.0, 120.0), 30)
    peak = max(size for _, size in sizes)
    assert peak >= 8
    assert size_at(sizes, 720 + 240) == peak
    assert sizes[-1][1] == 2


def test_the_status_and_events_tell_what_happened() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", maximum=5, cpu_percent=50))
        cluster.set_load("default", "web", 300.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "web") == 5
            assert len(ready_pods(cluster, app="web")) == 5
            assert running.condition("default", "web", "AbleToScale")[0] == "True"
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")
            assert running.condition("default", "web", "ScalingLimited") == ("True", "TooManyReplicas")
            current = running.status("default", "web")["currentMetrics"][0]["resource"]["current"]
            assert current["averageUtilization"] > 50
            told = events(cluster, reason="SuccessfulRescale", name="web")
            assert told[-1]["message"].startswith("New size: ")
            assert told[-1]["source"]["component"] == "horizontal-pod-autoscaler"
            trace = running.controller.explain("hpa", "default/web")
            assert trace is not None
            assert trace["limited"]["reason"] == "TooManyReplicas"
            assert len(trace["history"]) > 5
            assert running.controller.explain("vpa", "default/web") is None
            assert running.controller.explain("hpa", "default/other") is None

    run(main, nodes=3)


def test_a_changed_spec_is_handled_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=4, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", maximum=10, cpu_percent=50))
        cluster.set_load("default", "web", 90.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(seconds=100.5))
            assert running.replicas("default", "web") == 4
            await cluster.apply(make_hpa("web", maximum=10, minimum=6, cpu_percent=50))
            await cluster.run_for(timedelta(seconds=0.5))
            assert running.replicas("default", "web") == 6
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            await cluster.run_for(timedelta(seconds=13))
            assert running.counted("horizontal_pod_autoscaler_controller_reconciliations_total") == turns

    run(main, nodes=3)


def test_what_is_not_about_the_spec_causes_no_reconcile() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=4, cpu="500m", memory="64Mi"))
        made = make_hpa("web", maximum=10, cpu_percent=50)
        await cluster.apply(made)
        cluster.set_load("default", "web", 90.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            before = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            for number in range(20):
                made["metadata"]["labels"] = {"change": str(number)}
                made["metadata"]["annotations"] = {"example.com/change": str(number)}
                await cluster.apply(made)
                await cluster.run_for(timedelta(seconds=1))
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total") - before
            assert 1 <= turns <= 2

    run(main, nodes=3)


@pytest.mark.parametrize(
    ("scope", "namespaces", "lists"),
    [
        pytest.param(MetricsScope.AUTO, 8, 1, id="many-namespaces-share-one-list-of-the-cluster"),
        pytest.param(MetricsScope.AUTO, 2, 2, id="few-namespaces-have-one-each"),
        pytest.param(MetricsScope.NAMESPACE, 8, 8, id="one-each-if-told-so"),
        pytest.param(MetricsScope.CLUSTER, 2, 1, id="one-for-all-if-told-so"),
    ],
)
def test_usage_is_listed_per_namespace_or_for_the_cluster(scope: MetricsScope, namespaces: int, lists: int) -> None:
    async def main(cluster: SimCluster) -> None:
        for number in range(namespaces):
            namespace = f"team-{number}"
            await cluster.apply(make_deployment("web", namespace, replicas=1, cpu="100m", memory="32Mi"))
            await cluster.apply(make_hpa("web", namespace, maximum=4, cpu_percent=50))
            cluster.set_usage(namespace, "web", cpu="95m")
        async with autoscaler(cluster, HpaSettings(metrics_scope=scope)) as running:
            await cluster.run_for(timedelta(minutes=3))
            assert all(running.replicas(f"team-{number}", "web") >= 2 for number in range(namespaces))
            before = running.requests.counts["metrics"]
            await cluster.run_for(timedelta(minutes=5))
            asked = running.requests.counts["metrics"] - before
            assert lists * 5 * 60 / 16.5 - lists <= asked <= lists * 5 * 60 / 13.5 + lists

    run(main, nodes=3)


def test_reconciles_come_about_once_per_sync_period() -> None:
    async def main(cluster: SimCluster) -> None:
        for number in range(20):
            await cluster.apply(make_deployment(f"web-{number}", replicas=1, cpu="100m", memory="64Mi"))
            await cluster.apply(make_hpa(f"web-{number}", target=f"web-{number}", maximum=3, cpu_percent=50))
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=10))
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            assert 20 * 40 * 0.95 <= turns <= 20 * 41 * 1.05
            # One list of usage serves all twenty, in every period.
            assert running.requests.counts["metrics"] <= 10 * 60 / 13.5 + 2
            assert running.requests.counts["scale"] == turns

    run(main, nodes=3)
