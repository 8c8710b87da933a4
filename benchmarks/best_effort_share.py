"""A fixed threshold for best-effort work against one that follows what latency-sensitive pods feel, over node-days.

    python benchmarks/best_effort_share.py [--nodes 1000] [--hours 24] [--target 5] [--seed 1]

The rule of kubetide/node/core/qos/share_target.py, over arrays (it is compared with that rule first), on a model of a
node in steps of a second. The nodes differ in size, load, bursts and, above all, in how much their pods suffer from
neighbours (`sensitivity`, a factor between about 0.2 and 5), which no fixed threshold can know:

    load          a day and a night, slow noise, and bursts of 2 to 60 s that come without notice
    best effort   wants the whole node and gets what is below the threshold, by the usage of the second before, growing
                  by at most a tenth of the node a second, as CPU suppress has it; what others need it does not get
    busy          probability that a task that wakes finds no idle CPU: utilization ^ sqrt(2 (cores + 1))
    pressure      share of time in which tasks wait: 0.2 x sensitivity x busy, with noise
    latency       1 on an idle node, + 0.5 x busy by the load alone + 0.5 x sensitivity x busy by all

Printed are means over the nodes: CPU delivered to best-effort work in percent of the node, the 99th percentile of
latency (seconds weighted by load), the share of time over the target, and how the two thresholds differ by node. The
rule was chosen with seed 1: other seeds are other nodes. The model says how the rule behaves when
sensitivity differs, not how large the gain on a machine is: that depends on the machine.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubetide.node.core.qos import share_target as rule

Floats = NDArray[np.float64]
FIXED, CEILING, FLOOR = 65, 90, 5
POLICIES = ("no colocation", "fixed 65 %", "controlled", "no limit")
BINS, HIGHEST = 800, 8.0


@dataclass(slots=True)
class Shares:
    """The state of the rule on all nodes."""

    percent: Floats
    edge: Floats
    calm: Floats


def step(shares: Shares, observed: Floats, target: float) -> Shares:
    """Return the shares after a second: `next_share` over arrays."""
    percent, edge = np.clip(shares.percent, FLOOR, CEILING), np.clip(shares.edge, FIXED, CEILING)
    over, above = observed > target, percent > FIXED
    excess = np.minimum((observed - target) / target, 1.0)
    lower = np.where(above, FIXED, np.maximum(percent - percent * rule.DOWN_SHARE * excess, FLOOR))
    calm = np.where(over, 0.0, shares.calm + 1.0)
    back = np.where(above, np.maximum(np.minimum(edge, percent) - rule.EDGE_BACK, FIXED), FIXED)
    quiet = calm >= rule.EDGE_CALM_SECONDS
    edge = np.where(over, back, np.where(quiet, np.minimum(edge + rule.EDGE_UP_PER_SECOND, CEILING), edge))
    higher = np.where(calm < rule.CALM_SECONDS, percent, np.minimum(percent + rule.UP_PER_SECOND, edge))
    return Shares(np.where(over, lower, higher), edge, calm)


def check(rng: np.random.Generator, target: float) -> None:
    """Compare the rule over arrays with the rule of the agent."""
    many = 2000
    before = Shares(rng.uniform(0, 100, many), rng.uniform(0, 100, many), rng.uniform(0, 1000, many))
    observed = rng.uniform(0, 3 * target, many)
    after = step(before, observed, target)
    wanted = rule.ShareTarget(rule.Signal.PRESSURE, target)
    for place in range(many):
        percent, edge, calm = (float(column[place]) for column in (before.percent, before.edge, before.calm))
        found = rule.next_share(
            rule.Share(percent=percent, edge=edge, calm=calm),
            float(observed[place]),
            wanted,
            fixed=FIXED,
            ceiling=CEILING,
            floor=FLOOR,
            elapsed=1.0,
        )
        got = (after.percent[place], after.edge[place], after.calm[place])
        assert (found.percent, found.edge, found.calm) == got, place


class Load:
    """What the latency-sensitive pods of all nodes want, in shares of their node, second by second."""

    def __init__(self, nodes: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.base = rng.uniform(0.10, 0.40, nodes)
        self.swing = rng.uniform(0.2, 0.7, nodes)
        self.phase = rng.uniform(0, 2 * np.pi, nodes)
        self.height = rng.uniform(0.1, 0.4, nodes)
        self.often = 1 / rng.uniform(180, 1200, nodes)
        self.noise = np.zeros(nodes)
        self.left = np.zeros(nodes)

    def at(self, second: int) -> Floats:
        daily = 1 + self.swing * np.sin(2 * np.pi * second / 86400 + self.phase)
        self.noise = 0.98 * self.noise + 0.01 * self.rng.standard_normal(len(self.base))
        begins = self.rng.random(len(self.base)) < self.often
        self.left = np.where(begins, self.rng.integers(2, 61, len(self.base)), self.left - 1)
        return np.clip(self.base * daily * (1 + self.noise) + self.height * (self.left > 0), 0.01, 1.0)


def compare(figures: Mapping[str, tuple[Floats, Floats]]) -> list[str]:
    """Return by how much each figure is higher with a target than with the fixed threshold."""
    lines = ["controlled less fixed, by node, with 95 % intervals (bootstrap over nodes)"]
    for name, (controlled, fixed) in figures.items():
        difference = controlled - fixed
        nodes = len(difference)
        drawn = difference[np.random.default_rng(1).integers(0, nodes, (1000, nodes))].mean(axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        lines.append(f"{name:26} {difference.mean():+.2f} ({low:+.2f} to {high:+.2f})")
    return lines


def simulate(nodes: int, seconds: int, target: float, seed: int) -> None:
    """Run all policies beside each other over the same load and print the table."""
    rng = np.random.default_rng(seed)
    check(rng, target)
    load = Load(nodes, rng)
    cores = rng.choice([16.0, 32.0, 64.0], nodes)
    power = np.sqrt(2 * (cores + 1))
    sensitivity = np.clip(np.exp(rng.normal(0.0, 0.7, nodes)), 0.2, 5.0)
    count = len(POLICIES)
    first = rule.first_share(FIXED)
    shares = Shares(np.full(nodes, first.percent), np.full(nodes, first.edge), np.zeros(nodes))
    allowed = np.zeros((count, nodes))
    delivered, over = np.zeros((count, nodes)), np.zeros((count, nodes))
    histogram = np.zeros((count, nodes, BINS))
    policy, place = np.ogrid[:count, :nodes]
    last = load.at(0)
    weight = np.zeros(nodes)
    began = time.process_time()
    for second in range(1, seconds):
        threshold = np.stack(
            [np.zeros(nodes), np.full(nodes, FIXED / 100), shares.percent // 1 / 100, np.full(nodes, np.inf)]
        )
        allowed = np.minimum(np.maximum(threshold - last, 0.0), allowed + 0.1)
        wanted = load.at(second)
        used = np.minimum(allowed, 1.0 - wanted)
        busy = (wanted + used) ** power
        pressure = np.minimum(0.2 * sensitivity * busy, 1.0)
        noisy = 100 * pressure * rng.uniform(0.7, 1.3, nodes)
        latency = 1 + 0.5 * wanted**power + 0.5 * sensitivity * busy
        latency[0] = 1 + 0.5 * wanted**power  # nobody else is there
        pressure[0] = 0.0
        slot = np.minimum((latency - 1) / HIGHEST * BINS, BINS - 1).astype(np.int64)
        histogram[policy, place, slot] += wanted
        delivered += used
        over += 100 * pressure > target
        weight += wanted
        shares = step(shares, noisy[2], target)
        last = wanted
    spent = time.process_time() - began
    ranks = np.cumsum(histogram, axis=2) >= 0.99 * weight[None, :, None]
    worst = 1 + (np.argmax(ranks, axis=2) + 1) * HIGHEST / BINS
    print(f"{nodes * seconds / 86400:.0f} node-days, target pressure={target:g}, {spent:.0f} s of CPU")
    print(f"{'':16} {'best effort':>12} {'p99 latency':>12} {'worst tenth':>12} {'over target':>12}")
    for row, name in enumerate(POLICIES):
        tail = np.sort(worst[row])[-max(nodes // 10, 1) :].mean()
        print(
            f"{name:16} {100 * delivered[row].mean() / (seconds - 1):10.1f} % {worst[row].mean():12.2f} {tail:12.2f} "
            f"{100 * over[row].mean() / (seconds - 1):10.2f} %"
        )
    figures = {
        "best effort, points": 100 * delivered / (seconds - 1),
        "p99 latency": worst,
        "time over target, points": 100 * over / (seconds - 1),
    }
    print(*compare({name: (values[2], values[1]) for name, values in figures.items()}), sep="\n")


def main() -> None:
    """Read the options and simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--target", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    simulate(options.nodes, int(options.hours * 3600), options.target, options.seed)


if __name__ == "__main__":
    main()
