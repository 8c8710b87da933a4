"""How often a status is written: what changed at once, values that drift once per interval."""

import json
from datetime import timedelta

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Curve, Ramp, Step
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Running, autoscaler
from simulated.cluster import run

ALWAYS = HpaSettings(status_interval=timedelta(0))
NOISY = """
nodes:
- {name: node, count: 6, cpu: "8", memory: 32Gi}
workloads:
- name: web
  replicas: 4
  requests: {cpu: 500m, memory: 256Mi}
  load: {curve: diurnal, low: 88, high: 92, peak-hour: 14, noise: 0.02}
  cpu-per-request: 10m
"""


def _status_writes(running: Running) -> int:
    return running.requests.counts["status"]


def _explained(running: Running) -> str:
    trace = running.controller.explain("hpa", "default/web")
    assert trace is not None
    return json.dumps(trace["metrics"], default=str)


@pytest.mark.parametrize(
    ("settings", "fewest", "most"),
    [
        pytest.param(HpaSettings(), 8, 12, id="once-a-minute"),
        pytest.param(ALWAYS, 30, 44, id="without-an-interval-in-every-reconcile"),
    ],
)
def test_values_that_drift_are_written_once_per_interval(settings: HpaSettings, fewest: int, most: int) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50))
        async with autoscaler(cluster, settings) as running:
            await cluster.run_for(timedelta(minutes=10))
            before, written, shown = _status_writes(running), set(), set()
            for _ in range(40):
                await cluster.run_for(timedelta(seconds=15))
                written.add(json.dumps(running.status("default", "web")["currentMetrics"]))
                shown.add(_explained(running))
            assert running.replicas("default", "web") == 4
            assert fewest <= _status_writes(running) - before <= most
            # Whatever is written, explain shows the newest values.
            assert len(shown) >= 5
            assert len(written) <= most + 1

    run(main, scenario=NOISY)


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(Step(((600.0, 200.0), (1800.0, 20.0)), initial=20.0), id="step"),
        pytest.param(Ramp(20.0, 300.0, 300.0, 1800.0), id="ramp"),
    ],
)
def test_sizes_do_not_depend_on_how_often_values_are_written(curve: Curve) -> None:
    def sizes(settings: HpaSettings) -> list[tuple[float, int]]:
        async def main(cluster: SimCluster) -> list[tuple[float, int]]:
            await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
            await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50))
            cluster.set_load("default", "web", curve)
            async with autoscaler(cluster, settings) as running:
                return await running.follow(timedelta(minutes=45), "default", "web")

        return run(main, nodes=6)

    assert sizes(HpaSettings()) == sizes(ALWAYS)


def test_a_condition_and_a_count_are_written_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50))
        async with autoscaler(cluster, HpaSettings(status_interval=timedelta(hours=1))) as running:
            await cluster.run_for(timedelta(minutes=10))
            with cluster.outage("metrics"):
                await cluster.run_for(timedelta(seconds=35))
                assert running.condition("default", "web", "ScalingActive")[0] == "False"
            await cluster.run_for(timedelta(seconds=90))
            assert running.condition("default", "web", "ScalingActive")[0] == "True"
            cluster.set_load("default", "web", 900.0)
            await cluster.run_for(timedelta(minutes=5))
            status = running.status("default", "web")
            assert status["currentReplicas"] == running.replicas("default", "web") > 10

    run(main, scenario=NOISY)


def test_at_rest_a_status_that_cannot_be_written_is_tried_once_per_reconcile_and_reported() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_hpa("web", maximum=20, minimum=2, cpu_percent=50))
        async with autoscaler(cluster, ALWAYS) as running:
            await cluster.run_for(timedelta(minutes=10))
            before = _status_writes(running)
            cluster.api.faults.resources = frozenset({"horizontalpodautoscalers"})
            cluster.api.faults.errors = {"update": 1.0}
            await cluster.run_for(timedelta(minutes=2))
            assert 6 <= _status_writes(running) - before <= 10
            trace = running.controller.explain("hpa", "default/web")
            assert trace is not None
            assert "injected fault" in str(trace["history"][-1]["problem"])
            cluster.api.faults.errors = {}
            await cluster.run_for(timedelta(minutes=2))
            trace = running.controller.explain("hpa", "default/web")
            assert trace is not None
            assert trace["history"][-1]["problem"] is None

    run(main, scenario=NOISY)
