"""Best-effort CPU and the latency of its neighbours with the whole node agent on simulated nodes, in virtual time.

    python -m benchmarks.best_effort_agent [--nodes 20] [--hours 24] [--target pressure=5] [--bursts 2] [--seed 1]
                                           [--workers 2] [--into nodes.jsonl] [--seconds 450]

Each node has 8 CPUs and a latency-sensitive pod without a CPU request (so that its neighbours can take CPU from it).
Its load is that of `benchmarks/best_effort_share.py`: a day and a night, noise every second, and bursts of 2 to 60 s
that come without notice, here twice as high (`--bursts`, 20 to 80 % of the node), because a simulated kernel shares
fairly and a pod that wants less than half of the node loses nothing. The same days run with

    no colocation   neither batch work nor an agent
    no limit        batch work that wants the whole node, and no agent
    fixed 65 %      the agent with CPU suppress as it is by default
    target          the agent with `--best-effort-target`

The agent is whole: collectors and suppression every second, hooks, kernel files of a simulated cgroup v2. All figures
come from the counters of the simulated kernel, over each second:

    best effort     CPU that batch work used, in percent of the node
    slower          how much longer work of the latency-sensitive pod takes than on an idle node: wanted / granted
    over target     share of seconds in which the pod waited for CPU for more than 5 % of the time

Printed are means over the nodes; percentiles count seconds by the CPU wanted in them, as requests would. A second of
a node takes a millisecond of CPU with an agent: `--into` keeps every node in a file and goes on from there,
`--seconds` ends in time.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks import pieces
from benchmarks.best_effort_share import Floats, Load, compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.profile import Profile
from qosagent import batch_pod, ls_pod, make_agent, node_slo, row_of, running
from simulated.cluster import run

CPUS = 8.0
SECOND = timedelta(seconds=1)
START = 30
"""Seconds in which pods and agent start; nothing is counted."""
WAITING = 0.05
"""Share of a second in which tasks wait for CPU that counts as over the target, whatever the target of the run is."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one node-day came to."""

    seed: int
    policy: str
    hours: float
    bursts: float
    best_effort_percent: float
    slower_p99: float
    slower_p999: float
    over_percent: float


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A load that was drawn before, a level for each second."""

    levels: tuple[float, ...]

    def level(self, elapsed: float, week: float) -> float:
        return self.levels[min(round(elapsed), len(self.levels) - 1)]


def cores(seed: int, seconds: int, bursts: float) -> Recorded:
    """Return the cores that the latency-sensitive pod of a node wants, to a thousandth."""
    load = Load(1, np.random.default_rng(seed))
    load.height *= bursts
    return Recorded(tuple(round(CPUS * float(load.at(second)[0]), 3) for second in range(seconds)))


@dataclass(frozen=True, slots=True)
class Counters:
    """Reads the counters of the simulated kernel every second, once everything has started."""

    cluster: SimCluster
    seen: list[tuple[float, float, float]]
    web: int
    job: int | None

    def stepped(self, now: float) -> None:
        if now >= START - 0.5:
            kernel = self.cluster.kernel
            used = 0.0 if self.job is None else float(kernel.usage[self.job])
            self.seen.append((float(kernel.usage[self.web]), float(kernel.stalled_seconds[self.web]), used))

    def killed(self, workload: tuple[str, str], requests: float) -> None:
        raise RuntimeError(f"{workload[1]} was OOM-killed")


def play(hours: float, bursts: float, target: str, work: tuple[int, str]) -> Outcome:
    """Run one node under one policy."""
    seed, policy = work
    seconds = round(hours * 3600)
    batch, wanted = policies(target)[policy]
    load = cores(seed, START + seconds, bursts)
    seen: list[tuple[float, float, float]] = []

    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup="v2", driver="systemd")
        cluster.set_profile("default", "web", Profile(curve=load, cpu_per_request=1.0, cpu_idle=0.0))
        cluster.set_usage("default", "job", cpu="8")
        slo = node_slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
        pods = [ls_pod("web", memory="1Gi"), *([batch_pod("job", cpu=8000)] if batch else [])]
        await cluster.apply([slo, *pods])
        await cluster.run_for(20 * SECOND)
        agent = nullcontext() if wanted is None else running(make_agent(cluster, best_effort_target=wanted))
        async with agent:
            counters = Counters(cluster, seen, row_of(cluster, "web"), row_of(cluster, "job") if batch else None)
            cluster.observers.append(counters)
            await cluster.run_for((START - 20 + seconds + 1) * SECOND)

    run(body, scenario="name: node\ntick: 1s\n")
    used, waited, delivered = np.diff(np.array(seen[: seconds + 1]), axis=0).T
    granted = np.maximum(1.0 - waited, 0.001)
    p99, p999 = percentiles(1.0 / granted, weights=used / granted)
    over = 100 * float(np.mean(waited > WAITING))
    return Outcome(seed, policy, hours, bursts, 100 * float(np.mean(delivered)) / CPUS, p99, p999, over)


def percentiles(values: Floats, *, weights: Floats) -> tuple[float, float]:
    """Return the 99th percentile and that of one in a thousand."""
    order = np.argsort(values, kind="stable")
    ranks = np.cumsum(weights[order])
    p99, p999 = (float(values[order][np.searchsorted(ranks, share * ranks[-1])]) for share in (0.99, 0.999))
    return p99, p999


def policies(target: str) -> dict[str, tuple[bool, str | None]]:
    """Return by name whether there is batch work, and the target of the agent: None where no agent runs."""
    return {
        "no colocation": (False, None),
        "no limit": (True, None),
        "fixed 65 %": (True, ""),
        f"target {target}": (True, target),
    }


def report(found: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    """Return means over the nodes that ran under every policy, and what a target changes."""
    whole = set.intersection(*({one.seed for one in found if one.policy == name} for name in names))
    if not whole:
        return ["no node ran under every policy yet"]
    heads = ("nodes", "best effort", "p99 slower", "worst tenth", "p99.9", "over target")
    lines = ["".join([f"{'':18}", *(f"{head:>13}" for head in heads)])]
    columns: dict[str, Floats] = {}
    for name in names:
        some = [one for one in found if one.policy == name and one.seed in whole]
        given, p99, p999, over = columns[name] = np.array(
            [(one.best_effort_percent, one.slower_p99, one.slower_p999, one.over_percent) for one in some]
        ).T
        tail = np.sort(p99)[-max(len(some) // 10, 1) :].mean()
        row = (f"{len(some)}", f"{given.mean():.1f} %", f"{p99.mean():.3f}", f"{tail:.3f}", f"{p999.mean():.3f}")
        lines.append("".join([f"{name:18}", *(f"{text:>13}" for text in row), f"{over.mean():11.2f} %"]))
    fixed, controlled = (columns[name] for name in names[-2:])
    figures = ("best effort, points", "p99 slower", "p99.9 slower", "time over target, points")
    return lines + compare(dict(zip(figures, zip(controlled, fixed, strict=True), strict=True)))


def main() -> None:
    """Compare the policies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--bursts", type=float, default=2.0, help="factor for the height of bursts")
    parser.add_argument("--target", default="pressure=5")
    parser.add_argument("--seed", type=int, default=1)
    pieces.add_options(parser)
    given = parser.parse_args()
    wanted = [(given.seed + number, name) for number in range(given.nodes) for name in policies(given.target)]
    held = [one for one in pieces.known(given, Outcome) if (one.hours, one.bursts) == (given.hours, given.bursts)]
    found = {(one.seed, one.policy): one for one in held}
    left = [work for work in wanted if work not in found]
    for one in pieces.play_all(partial(play, given.hours, given.bursts, given.target), left, given):
        found[one.seed, one.policy] = one
    outcomes = [found[work] for work in wanted if work in found]
    print(f"{given.hours:g} h each", *report(outcomes, list(policies(given.target))), sep="\n")


if __name__ == "__main__":
    main()
