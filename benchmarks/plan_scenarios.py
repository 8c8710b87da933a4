"""Counts and sizes of one workload, decided by whole controllers in a simulated cluster, in virtual time.

    python -m benchmarks.plan_scenarios [--scenarios 200] [--hours 3] [--seed 1] [--workers 2] [--policies followed]

Scenarios are drawn as in `benchmarks/plan_model.py`, smaller, so that they fit on a few simulated nodes. Each is run
four times, with the HPA, the recommender, the updater (in place) and the admission webhook as they run in a cluster:

    counts       no VPA
    upstream     an HPA and a VPA that know nothing of each other (`--hpa-conflicts=ignore`)
    followed     `--hpa-conflicts=coordinate` and `--hpa-coordinate`
    alone        `--hpa-conflicts=coordinate` alone, as beside kube-controller-manager's HPA

Counted from the second hour on: CPU requested by ready pods over demand ÷ target, the share of minutes in which demand
exceeds what ready pods request, reversals of the count per hour, and where count and size are in the end.
"""

import argparse
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from benchmarks.plan_model import SHAPES, Scenarios

from kubetide import crds
from kubetide.api.values.quantity import parse_quantity
from kubetide.testing import Cluster, virtual_time
from kubetide.testing.builders import make_hpa, make_vpa
from kubetide.vpa.recommender.settings import HpaConflicts

POLICIES = ("counts", "upstream", "followed", "alone")
WARM_MINUTES = 60
PER_REQUEST = 10
"""Millicores that a request per second takes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario."""

    shape: str
    policy: str
    cost: float
    short: float
    """Share of minutes in which demand exceeds what ready pods request."""
    reversals: float
    replicas: tuple[int, ...]
    """Every ten minutes."""
    sizes: tuple[int, ...]
    maximum: int


def play(scenarios: Scenarios, hours: float, work: tuple[int, str]) -> Outcome:
    """Run one scenario under one policy."""
    row, policy = work
    return virtual_time(partial(_play, scenarios, row, policy, hours))()


async def _play(scenarios: Scenarios, row: int, policy: str, hours: float) -> Outcome:
    target, maximum = int(scenarios.target[row]), int(scenarios.maximum[row])
    # Up to 800m of demand before it moves, so that a few nodes are enough.
    scale = min(1.0, 800.0 / float(scenarios.base[row]))
    request = max(25, round(float(scenarios.request[row]) * scale))
    minutes = round(hours * 60)
    # What takes two days in the model takes a few hours here.
    levels = [float(scenarios.level(60.0 * minute * 48 / hours)[row]) * scale for minute in range(minutes)]
    start = max(5, int(scenarios.start[row]))
    first = max(int(scenarios.minimum[row]), min(maximum, -(-round(levels[0] * 100) // (request * target))))
    scenario = f"""
name: plan
tick: 30s
nodes: [{{name: node, count: 4, cpu: "16", memory: 64Gi, pods: 200}}]
workloads:
- name: web
  replicas: {first}
  requests: {{cpu: {request}m, memory: 64Mi}}
  cpu-per-request: {PER_REQUEST}m
  cpu-idle: 0m
  start-cpu: 1m
  start-delay: {start}s
"""
    counts, paid, short = [], 0.0, 0
    needed, sizes = 0.0, []
    async with Cluster(scenario=scenario, seed=row) as cluster:
        await cluster.apply(crds.load("verticalpodautoscalers"), crds.load("verticalpodautoscalercheckpoints"))
        await cluster.apply(make_hpa("web", minimum=int(scenarios.minimum[row]), maximum=maximum, cpu_percent=target))
        cluster.set_load("web", levels[0] / PER_REQUEST)
        components: tuple[str, ...] = ("hpa",)
        if policy != "counts":
            await cluster.apply(make_vpa("web", mode="InPlaceOrRecreate"))
            components = ("hpa", "recommender", "updater", "admission")
        how = HpaConflicts.IGNORE if policy == "upstream" else HpaConflicts.COORDINATE
        settings: dict[str, Any] = {
            "hpa": {"coordinate": policy == "followed"},
            "recommender": {"hpa_conflicts": how},
            "admission": {"lease_period": timedelta(seconds=30)},
        }
        await cluster.start(*components, **{name: settings[name] for name in components if name in settings})
        for minute in range(minutes):
            cluster.set_load("web", levels[minute] / PER_REQUEST)
            await cluster.run_for(timedelta(minutes=1))
            requested = [_request(pod) for pod in cluster.ready_pods()]
            counts.append(int(cluster.get("Deployment", "web")["spec"]["replicas"]))
            sizes.append(round(sum(requested) / max(len(requested), 1)))
            if minute >= WARM_MINUTES:
                paid += sum(requested)
                needed += levels[minute] * 100 / target
                short += sum(requested) < levels[minute]
    counted = max(minutes - WARM_MINUTES, 1)
    return Outcome(
        shape=SHAPES[int(scenarios.shape[row])],
        policy=policy,
        cost=paid / needed,
        short=short / counted,
        reversals=reversals(counts[WARM_MINUTES:]) * 60 / counted,
        replicas=tuple(counts[9::10]),
        sizes=tuple(sizes[9::10]),
        maximum=maximum,
    )


def _request(pod: dict[str, Any]) -> int:
    return sum(parse_quantity(each["resources"]["requests"]["cpu"]).milli for each in pod["spec"]["containers"])


def reversals(counts: Sequence[int]) -> int:
    """Return how often a count turned around."""
    signs = [after > before for before, after in pairwise(counts) if after != before]
    return sum(one != other for one, other in pairwise(signs))


def report(found: Sequence[Outcome]) -> list[str]:
    """Return a table of what was found."""
    lines = [f"{'':<10}{'shape':<10}{'cost':>7}{'short':>8}{'turns/h':>9}{'most':>6}{'at max':>8}{'moved':>7}"]
    for policy in POLICIES:
        for shape in ("all", *SHAPES):
            some = [one for one in found if one.policy == policy and shape in ("all", one.shape)]
            if not some:
                continue
            turns = [one.reversals for one in some]
            # Where the load is constant, what happens after half the time is drift.
            moved = sum(one.replicas[len(one.replicas) // 2] != one.replicas[-1] for one in some)
            lines.append(
                f"{policy:<10}{shape:<10}{np.mean([one.cost for one in some]):>7.3f}"
                f"{np.mean([one.short for one in some]):>8.2%}{np.mean(turns):>9.2f}{max(turns):>6.1f}"
                f"{np.mean([one.replicas[-1] >= one.maximum for one in some]):>8.1%}{moved / len(some):>7.1%}"
            )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--hours", type=float, default=3)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    scenarios = Scenarios.draw(given.scenarios, given.seed)
    work = [(row, policy) for row in range(given.scenarios) for policy in given.policies.split(",")]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        found = []
        for number, one in enumerate(pool.imap(partial(play, scenarios, given.hours), work), 1):
            found.append(one)
            if number % (5 * len(given.policies.split(","))) == 0:
                # What is known so far: the whole takes a while.
                print(f"\nafter {number} of {len(work)} runs", *report(found), sep="\n", flush=True)
    print("\n", *report(found), sep="\n")


if __name__ == "__main__":
    main()
