"""A fleet that leaks, with and without `--resize-before-oom`, in virtual time.

    python tests/simulated/leak.py [--pods 100] [--replicas 1] [--mode InPlaceOrRecreate] [--hours 4]

Pods with limits of 512Mi leak 50 to 500Mi an hour, in Deployments of so many replicas, each with a VPA without
maxAllowed, on nodes with room. Recommender, updater and webhook of kubetide run with their defaults; `upstream` is the
same with --upstream-behavior. Workloads of one replica are left alone by default (--min-replicas is 2), so that their
leaks end in OOM kills; those with more are resized or evicted as the recommendation follows their usage.
"""

import argparse
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger
from kubetide.metrics.core.readings import NodeAlarms
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import run
from simulated.recommending import recommender
from simulated.signals import signals
from simulated.updating import install_crds, vpa_parts, watch_disruptions


@dataclass
class Fleet:
    """What became of a fleet."""

    oom_kills: int = 0
    evictions: int = 0
    resizes: int = 0
    latencies: list[float] = field(default_factory=list)
    """Seconds from the sample that raised an alarm to the resize that answered it."""

    def latency(self, share: float) -> float:
        """Return a percentile of the latencies."""
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def measure(
    *,
    pods: int,
    hours: float,
    resize: bool,
    slowest: float = 50,
    fastest: float = 500,
    replicas: int = 1,
    mode: str = "InPlaceOrRecreate",
    upstream: bool = False,
) -> Fleet:
    """Let so many pods leak for so many hours."""

    async def main(cluster: SimCluster) -> Fleet:
        await install_crds(cluster)
        count = pods // replicas
        for number in range(count):
            leak = slowest + (fastest - slowest) * number / max(count - 1, 1)
            notes = {"sim.kubetide.io/memory": "100Mi", "sim.kubetide.io/leak-per-hour": f"{leak:.0f}Mi"}
            name = f"leak-{number}"
            given: dict[str, Any] = {"cpu": "50m", "memory": "256Mi", "memory_limit": "512Mi", "annotations": notes}
            await cluster.apply(make_deployment(name, replicas=replicas, **given))
            await cluster.apply(make_vpa(name, target=name, mode=mode))
        return await _leak(cluster, hours, resize=resize, upstream=upstream)

    return run(main, scenario="tick: 5s", nodes=2 + pods // 25)


async def _leak(cluster: SimCluster, hours: float, *, resize: bool, upstream: bool) -> Fleet:
    await cluster.run_for(timedelta(seconds=30))
    seen, ledger = watch_disruptions(cluster), Ledger(cluster)
    ledger.attach()
    updating = UpdaterSettings(resize_before_oom=resize, upstream_behavior=upstream)
    recommending = RecommenderSettings(upstream_behavior=upstream)
    fleet = Fleet()
    async with AsyncExitStack() as stack:
        heard = await stack.enter_async_context(signals(cluster, window=15.0, look=5.0)) if resize else None
        client_of = heard.client if heard is not None else None
        alarms: dict[str, list[datetime]] = {}
        if heard is not None:

            def note(now: NodeAlarms, before: NodeAlarms | None) -> None:
                for one in now.alarms:
                    alarms.setdefault("/".join(one.pod), []).append(now.at)

            heard.server.readings.alarmed.append(note)
        await stack.enter_async_context(vpa_parts(cluster, updating, client_of=client_of))
        await stack.enter_async_context(recommender(cluster, recommending))
        await cluster.run_for(timedelta(hours=hours))
    fleet.oom_kills = sum(account.oom_kills for account in ledger.accounts.values())
    fleet.evictions, fleet.resizes = len(seen.evictions), len(seen.resizes)
    for at, pod in seen.resizes:
        raised = [one for one in alarms.get(pod, ()) if one <= at]
        if raised:
            # The first alarm since the last resize of the pod.
            earlier = max((done for done, other in seen.resizes if other == pod and done < at), default=None)
            fresh = [one for one in raised if earlier is None or one > earlier]
            fleet.latencies += [(at - fresh[0]).total_seconds()] if fresh else []
    return fleet


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--mode", default="InPlaceOrRecreate")
    chosen = parser.parse_args()
    for title, options in (
        ("with --resize-before-oom", {"resize": True}),
        ("without it", {"resize": False}),
        ("upstream's behaviour", {"resize": False, "upstream": True}),
    ):
        found = measure(pods=chosen.pods, hours=chosen.hours, replicas=chosen.replicas, mode=chosen.mode, **options)
        timing = f", sample to resize p50 {found.latency(0.5):.2f} s, p99 {found.latency(0.99):.2f} s"
        print(
            f"{title}: {found.oom_kills} OOM kills, {found.evictions} evictions, {found.resizes} resizes"
            f"{timing if found.latencies else ''}",
            flush=True,
        )
