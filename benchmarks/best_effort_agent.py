"""Best-effort CPU and the latency of its neighbours with the whole node agent on simulated nodes, in virtual time.

    python -m benchmarks.best_effort_agent [--nodes 20] [--hours 24] [--target pressure=5] [--seed 1]

Each node has 8 CPUs, a latency-sensitive pod without a CPU request (so that its neighbours can take CPU from it) whose
load has a slow swing and bursts, and batch work that wants everything. The same days run without batch work, with the
fixed threshold and with a target; the agent is whole: collectors, suppression every second, hooks, kernel files of a
simulated cgroup v2. Printed are means over the nodes: CPU delivered to batch work in percent of the node, and the 99th
percentile of how much longer work of the latency-sensitive pod takes than on an idle node (demand / granted).
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kubetide.embedded.sim.cluster import SimCluster
from qosagent import batch_pod, granted, ls_pod, make_agent, node_slo, running
from simulated.cluster import run

CPUS = 8.0
SECOND = timedelta(seconds=1)
LONGEST_BURST = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one node-day came to."""

    best_effort_percent: float
    slower_p99: float


def loads(rng: Random, seconds: int) -> list[tuple[int, float]]:
    """Return (seconds, cores) pieces of a load with quiet times and bursts."""
    pieces: list[tuple[int, float]] = []
    while seconds > 0:
        quiet, burst = rng.randint(20, 300), rng.randint(2, LONGEST_BURST)
        pieces += [(quiet, rng.uniform(0.5, 3.0)), (burst, rng.uniform(3.0, 7.0))]
        seconds -= quiet + burst
    return pieces


def day(seed: int, seconds: int, *, batch: bool, target: str) -> Outcome:
    """Run one node for a day."""
    slower: list[float] = []
    delivered: list[float] = []

    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup="v2", driver="systemd")
        cluster.set_usage("default", "web", cpu="1")
        cluster.set_usage("default", "job", cpu="8")
        slo = node_slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
        pods = [ls_pod("web", memory="1Gi"), *([batch_pod("job", cpu=8000)] if batch else [])]
        await cluster.apply([slo, *pods])
        await cluster.run_for(20 * SECOND)
        async with running(make_agent(cluster, best_effort_target=target)):
            await cluster.run_for(10 * SECOND)
            for length, cores in loads(Random(seed), seconds):
                cluster.set_usage("default", "web", cpu=f"{cores:.3f}")
                for _ in range(length):
                    await cluster.run_for(SECOND)
                    slower.append(cores / max(granted(cluster, "web"), 0.001))
                    delivered.append(granted(cluster, "job") if batch else 0.0)

    run(body)
    slower.sort()
    return Outcome(100 * statistics.fmean(delivered) / CPUS, slower[int(0.99 * len(slower))])


def compare(nodes: int, seconds: int, target: str, seed: int) -> dict[str, Outcome]:
    """Return the means over the nodes by policy."""
    policies = {"no colocation": (False, ""), "fixed 65 %": (True, ""), f"target {target}": (True, target)}
    found: dict[str, Outcome] = {}
    for name, (batch, wanted) in policies.items():
        days = [day(seed + number, seconds, batch=batch, target=wanted) for number in range(nodes)]
        found[name] = Outcome(
            statistics.fmean(one.best_effort_percent for one in days), statistics.fmean(one.slower_p99 for one in days)
        )
    return found


def main() -> None:
    """Compare the policies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--target", default="pressure=5")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.process_time()
    found = compare(options.nodes, int(options.hours * 3600), options.target, options.seed)
    print(f"{options.nodes} nodes x {options.hours:g} h, {time.process_time() - began:.0f} s of CPU")
    print(f"{'':22} {'best effort':>12} {'p99 slower':>12}")
    for name, one in found.items():
        print(f"{name:22} {one.best_effort_percent:10.1f} % {one.slower_p99:12.2f}")


if __name__ == "__main__":
    main()
