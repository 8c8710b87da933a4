"""A day of load with a bad hour in it."""

from datetime import timedelta
from functools import cache
from itertools import pairwise

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Curve, Diurnal, Noisy
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

DAY: Curve = Noisy(Diurnal(40.0, 400.0, 14.0, 1.0), 0.05, seed=7)


OUTAGE_HOUR = 19


@cache
def a_day() -> tuple[list[tuple[float, int]], list[float]]:
    """Follow a deployment through a day; return its sizes and the CPU used per pod, as a share of its request."""

    async def main(cluster: SimCluster) -> tuple[list[tuple[float, int]], list[float]]:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", minimum=2, maximum=30, cpu_percent=60))
        cluster.set_load("default", "web", DAY)
        sizes: list[tuple[float, int]] = []
        usage: list[float] = []
        # No election: renewing a lease every two seconds is most of the work of a quiet day.
        async with autoscaler(cluster, HpaSettings(leader_elect=False)) as running:
            for hour in range(24):
                if hour == OUTAGE_HOUR:
                    with cluster.outage("metrics"):
                        sizes += await running.follow(timedelta(hours=1), "default", "web", every=timedelta(seconds=15))
                    continue
                sizes += await running.follow(timedelta(hours=1), "default", "web", every=timedelta(seconds=15))
                level = DAY.level(cluster.elapsed(), cluster.elapsed())
                usage.append(level * 0.010 / (sizes[-1][1] * 0.5))
        return sizes, usage

    return run(main, nodes=6, scenario=Scenario(tick="15s"))


def test_a_day_is_followed_without_flapping() -> None:
    sizes, usage = a_day()
    counts = [size for _, size in sizes]
    assert max(counts) >= 12
    assert min(counts) == 2
    # After the first hour usage stays near its target: never starved, and never idle but at the minimum.
    assert all(share < 0.85 for share in usage[1:])
    turns = [after - before for (_, before), (_, after) in pairwise(sizes) if after != before]
    flips = sum(1 for one, other in pairwise(turns) if one * other < 0)
    assert flips <= 12


def test_an_hour_without_metrics_keeps_the_size_and_recovers() -> None:
    sizes, _ = a_day()
    begin, end = OUTAGE_HOUR * 3600, (OUTAGE_HOUR + 1) * 3600
    during = {size for at, size in sizes if begin <= at < end}
    assert len(during) == 1
    assert min(size for at, size in sizes if at >= end) < min(during)
