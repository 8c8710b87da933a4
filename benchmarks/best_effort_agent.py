"""Best-effort CPU and the latency of its neighbours with the whole node agent on simulated nodes, in virtual time.

    python -m benchmarks.best_effort_agent [--nodes 20] [--hours 24] [--target pressure=5] [--seed 1] [--workers 2]
                                           [--into nodes.jsonl] [--seconds 450]

Each node has 8 CPUs, a latency-sensitive pod without a CPU request (so that its neighbours can take CPU from it) whose
load has a slow swing and bursts, and batch work that wants everything. The same days run without batch work, with the
fixed threshold and with a target; the agent is whole: collectors, suppression every second, hooks, kernel files of a
simulated cgroup v2. Printed are means over the nodes: CPU delivered to batch work in percent of the node, and the 99th
percentile of how much longer work of the latency-sensitive pod takes than on an idle node (demand / granted). A second
of a node takes 6 ms of CPU, so 20 days under three policies take eight hours: `--into` keeps every node in a file and
goes on from there, `--seconds` ends in time.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
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


def policies(target: str) -> dict[str, tuple[bool, str]]:
    """Return by name whether there is batch work, and the target."""
    return {"no colocation": (False, ""), "fixed 65 %": (True, ""), f"target {target}": (True, target)}


def play(seconds: int, target: str, work: tuple[int, str]) -> tuple[int, str, Outcome]:
    """Run one node under one policy."""
    seed, name = work
    batch, wanted = policies(target)[name]
    return seed, name, day(seed, seconds, batch=batch, target=wanted)


def report(found: Sequence[tuple[int, str, Outcome]]) -> list[str]:
    """Return means over the nodes by policy, and the node with the longest delay."""
    lines = [f"{'':22} {'nodes':>6} {'best effort':>12} {'p99 slower':>12} {'worst node':>12}"]
    for name in dict.fromkeys(name for _, name, _ in found):
        some = [one for _, policy, one in found if policy == name]
        slower = [one.slower_p99 for one in some]
        given = statistics.fmean(one.best_effort_percent for one in some)
        lines.append(f"{name:22} {len(some):6} {given:10.1f} % {statistics.fmean(slower):12.3f} {max(slower):12.3f}")
    return lines


def known(path: Path) -> list[tuple[int, str, Outcome]]:
    """Return the nodes that a file holds."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(seed, name, Outcome(*numbers)) for seed, name, *numbers in map(json.loads, lines)]


def main() -> None:
    """Compare the policies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--target", default="pressure=5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, help="keep nodes in this file, and go on from those that it holds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no node after this time")
    given = parser.parse_args()
    found = known(given.into) if given.into else []
    done, ends = {(seed, name) for seed, name, _ in found}, time.monotonic() + given.seconds
    wanted = [(given.seed + number, name) for number in range(given.nodes) for name in policies(given.target)]
    left = [each for each in wanted if each not in done]
    play_one = partial(play, int(given.hours * 3600), given.target)
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        while left and time.monotonic() < ends:
            for seed, name, one in pool.map(play_one, left[: given.workers], chunksize=1):
                found.append((seed, name, one))
                if given.into:
                    with given.into.open("a") as file:
                        file.write(json.dumps([seed, name, one.best_effort_percent, one.slower_p99]) + "\n")
            left = left[given.workers :]
    print(f"{given.hours:g} h each", *report(found), sep="\n")


if __name__ == "__main__":
    main()
