"""A day on a shared node: latency of a service beside best-effort work, with and without the agent."""

import statistics
from contextlib import nullcontext
from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Spike
from kubetide.embedded.sim.load.profile import Profile
from qosagent import batch_pod, granted, ls_pod, make_agent, node_slo, running
from simulated.cluster import run

ROUND, SELDOM = timedelta(seconds=10), timedelta(minutes=5)
HOUR = 3600.0
GOOD = 0.2
"""Seconds that a request may take."""


def day(*, with_agent: bool) -> tuple[list[float], float]:
    """Return the latency of every minute of a day, and the core hours that best-effort work got."""

    async def main(cluster: SimCluster) -> tuple[list[float], float]:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        peaks = Spike(base=60, peak=200, begin=HOUR, duration=900, every=2 * HOUR)
        cluster.set_profile("default", "web", Profile(curve=peaks, cpu_per_request=0.01))
        cluster.set_usage("default", "job", cpu="8")
        slo = node_slo(
            resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"},
            cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 300},
        )
        web = ls_pod("web", cpu="1", cpu_limit="1500m", memory="256Mi", memory_limit="512Mi")
        await cluster.apply([slo, web, batch_pod("job", cpu=8000)])
        agent = make_agent(
            cluster,
            collect_res_used_interval=ROUND,
            reconcile_interval_seconds=10,
            cpu_suppress_interval_seconds=10,
            node_topology_sync_interval=SELDOM,
            collect_node_storage_info_interval=SELDOM,
            runtime_hooks_reconcile_interval=SELDOM,
        )
        seen: list[float] = []
        spent = 0.0
        async with running(agent) if with_agent else nullcontext():
            for _ in range(24 * 60):
                await cluster.run_for(timedelta(minutes=1))
                seen += [work.latency for work in cluster.model.work_of(("default", "web"))]
                spent += granted(cluster, "job") / 60
        return seen, spent

    return run(main)


def test_a_service_stays_fast_all_day_only_with_the_agent() -> None:
    without, lent = day(with_agent=False)
    with_agent, shared = day(with_agent=True)
    slow_without = sum(latency > GOOD for latency in without)
    slow_with = sum(latency > GOOD for latency in with_agent)
    assert slow_without >= 150  # the limit throttles every one of twelve peaks of a quarter of an hour
    assert slow_with <= slow_without / 3
    assert statistics.mean(with_agent) < statistics.mean(without) / 3
    assert 0 < shared < lent  # what the service's comfort costs the best-effort work
