"""Ticks that are put off leave what ticks lived through one by one leave, bit for bit."""

from datetime import timedelta

import msgspec
import numpy as np
import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Curve, CurveLevels, Diurnal, Noisy, Ramp, Weekly, levels_of
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.load.scenario import Amount, LoadSpec, Scenario, ScenarioNodes, ScenarioWorkload
from kubetide.embedded.sim.time.loop import run_virtual


class EveryTick:
    """Observes and does nothing: with it, no tick is put off."""

    def killed(self, workload: WorkloadKey, requests: float) -> None:
        pass

    def stepped(self, now: float) -> None:
        pass


def scenario(high: float, cpu: str) -> Scenario:
    limited: dict[str, Amount] = {"cpu": "500m", "memory": "512Mi"}
    unlimited: dict[str, Amount] = {}
    workloads = [
        ScenarioWorkload(
            name=name,
            replicas=4,
            requests={"cpu": "200m", "memory": "128Mi"},
            limits=limits,
            load=LoadSpec(curve="diurnal", low=5, high=high, noise=0.2),
        )
        for name, limits in (("bounded", limited), ("free", unlimited))
    ]
    return Scenario(nodes=[ScenarioNodes(name="node", count=2, cpu=cpu, memory="16Gi")], workloads=workloads)


async def history(played: Scenario, *, every_tick: bool) -> list[bytes]:
    """Live through half a day with readers at odd moments; return what they saw and all columns."""
    seen: list[bytes] = []
    async with SimCluster(played) as cluster:
        if every_tick:
            cluster.observers.append(EveryTick())
        for minutes in (7, 0.3, 61, 0.05, 240, 33.3, 400):
            await cluster.run_for(timedelta(minutes=minutes))
            seen.append(cluster.metrics.pod_items())
            seen.append(cluster.hosts["node-1"].read("/proc/pressure/cpu").encode())
            seen.append(repr(sorted(cluster.model.rates().items())).encode())
            seen.append(cluster.kernel._block.tobytes())
        seen.append(msgspec.json.encode([cluster.metrics.node_metrics(), list(cluster.api.store.everything())]))
    return seen


@pytest.mark.parametrize(
    ("high", "cpu"), [(40.0, "16"), (600.0, "16"), (2000.0, "2")], ids=["at ease", "throttled", "short of CPU"]
)
def test_put_off_or_not_is_the_same(high: float, cpu: str) -> None:
    played = scenario(high, cpu)
    assert run_virtual(history(played, every_tick=False)) == run_virtual(history(played, every_tick=True))


def test_ticks_at_rest_are_put_off() -> None:
    async def behind() -> tuple[float, float]:
        async with SimCluster(scenario(40.0, "16")) as cluster:
            await cluster.run_for(timedelta(minutes=30, seconds=1))
            before = cluster._kernel.now
            return before, cluster.kernel.now

    before, after = run_virtual(behind())
    assert before < after == 1800.0


def test_a_pod_that_starts_meanwhile_is_counted_from_its_start() -> None:
    async def counted(*, every_tick: bool) -> bytes:
        async with SimCluster(scenario(40.0, "16")) as cluster:
            if every_tick:
                cluster.observers.append(EveryTick())
            await cluster.run_for(timedelta(minutes=30, seconds=2))
            transport = cluster.transport()
            path = "/apis/apps/v1/namespaces/default/deployments/free/scale"
            await transport.request(
                "PATCH", path, body=b'{"spec":{"replicas":6}}', content_type="application/merge-patch+json"
            )
            await cluster.run_for(timedelta(minutes=12))
            return cluster.kernel._block.tobytes() + cluster.metrics.pod_items()

    assert run_virtual(counted(every_tick=False)) == run_virtual(counted(every_tick=True))


@pytest.mark.parametrize(
    "curve",
    [
        Diurnal(5, 100),
        Diurnal(5, 100, peak_hour=3.5, sharpness=2.5),
        Noisy(Diurnal(50, 200), 0.1, seed=7),
        Noisy(Weekly(Diurnal(50, 200)), 1.5, seed=-3, period=40.0),
        Ramp(1, 9, begin=1000, duration=77777),
    ],
    ids=lambda curve: type(curve).__name__,
)
def test_levels_of_many_moments_are_those_of_each(curve: Diurnal | Noisy | Ramp) -> None:
    elapsed = np.arange(0.0, 700_000.0, 1234.5)
    week = elapsed + 4321.0
    expected = [curve.level(*at) for at in zip(elapsed.tolist(), week.tolist(), strict=True)]
    assert levels_of(curve, elapsed, week, {}).tolist() == expected


def test_levels_of_many_curves_are_those_of_each() -> None:
    day, ramp = Diurnal(50, 200), Ramp(1, 9, begin=1000, duration=77777)
    curves: list[Curve] = [
        day,
        Noisy(Diurnal(50, 200), 0.1, seed=7),
        Noisy(Diurnal(50, 200), 0.1, seed=8),
        Noisy(Diurnal(5, 20), 0.3, seed=8, period=40.0),
        Noisy(Weekly(day), 1.5, seed=-3),
        ramp,
        Noisy(ramp, 2.0, seed=1),
    ]
    levels = CurveLevels(curves)
    for elapsed in np.arange(0.0, 5000.0, 4.7).tolist():
        week = elapsed + 4321.0
        assert levels.at(elapsed, week) == [curve.level(elapsed, week) for curve in curves]
