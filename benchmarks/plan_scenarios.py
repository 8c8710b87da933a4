"""Counts and sizes of one workload, decided by whole controllers in a simulated cluster, in virtual time.

    python -m benchmarks.plan_scenarios [--scenarios 200] [--hours 4] [--seed 1] [--workers 2] [--policies followed]
                                        [--into runs.jsonl] [--seconds 450]

Scenarios are drawn as in `benchmarks/plan_model.py`, smaller, so that they fit on a few simulated nodes: two days of
steps, ramps and daily swings are pressed into the hours of a run; bursts and start times keep their length. Each is run
under several policies, with the HPA, the recommender, the updater (in place) and the admission webhook as they run in a
cluster:

    counts       no VPA
    sizes        no HPA: as many pods as in the beginning, sized by the recommender for the same target (p90 / target)
    upstream     an HPA and a VPA that know nothing of each other (`--hpa-conflicts=ignore`)
    followed     `--hpa-conflicts=coordinate` and `--hpa-coordinate`
    alone        `--hpa-conflicts=coordinate` alone, as beside kube-controller-manager's HPA

Counted from the third hour on: CPU requested by ready pods over demand / target, beside it that of the better single
dimension; how many cost more than 5 % more than that, and (`kept`) than a single dimension that keeps the target as
well; the share of minutes above the target by more than a tenth, and of those in which demand exceeds what ready pods
request; reversals of the count per hour, and where count and size are in the end. The whole takes half an hour of CPU
or more: `--into` keeps every run in a file and goes on from there, `--seconds` ends in time.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from benchmarks import pieces
from benchmarks.plan_model import AS_WELL, LATER, SHAPES, TOLERANCE, Scenarios

from kubetide import crds
from kubetide.api.values.quantity import parse_quantity
from kubetide.testing import Cluster, virtual_time
from kubetide.testing.builders import make_hpa, make_vpa
from kubetide.vpa.recommender.settings import HpaConflicts

POLICIES = ("counts", "sizes", "upstream", "followed")
WARM_MINUTES = 120
PER_REQUEST = 10
"""Millicores that a request per second takes."""
MODEL_HOURS = 48
INTERVAL = timedelta(minutes=2)
"""Of recommender and updater: sizes move once an hour at most, and half as many loops take half the time."""
OWN_TIME = ("constant", "bursts")
COMPONENTS = {
    "counts": ("hpa",),
    "sizes": ("recommender", "updater", "admission"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario."""

    row: int
    shape: str
    policy: str
    cost: float
    short: float
    """Share of minutes in which demand exceeds what ready pods request."""
    missed: float
    """Share of minutes in which utilization is above the target by more than the HPA's tolerance."""
    reversals: float
    replicas: tuple[int, ...]
    """Every ten minutes."""
    sizes: tuple[int, ...]
    maximum: int


def demand(scenarios: Scenarios, row: int, hours: float, noise: float) -> list[float]:
    """Return the demand of every minute in millicores, at most 800m before it moves."""
    scale = min(1.0, 800.0 / float(scenarios.base[row]))
    faster = 1.0 if SHAPES[int(scenarios.shape[row])] in OWN_TIME else MODEL_HOURS / hours
    rng, wander = Random(f"{scenarios.seed}/{row}"), 0.0
    levels = []
    for minute in range(round(hours * 60)):
        wander += 0.35 * (rng.gauss(0.0, noise) - wander)
        levels.append(float(scenarios.level(60.0 * minute * faster)[row]) * scale * max(1.0 + wander, 0.5))
    return levels


def play(scenarios: Scenarios, hours: float, noise: float, work: tuple[int, str]) -> Outcome:
    """Run one scenario under one policy."""
    row, policy = work
    return virtual_time(partial(_play, scenarios, row, policy, hours, noise))()


async def _play(scenarios: Scenarios, row: int, policy: str, hours: float, noise: float) -> Outcome:
    target, minimum, maximum = (int(one[row]) for one in (scenarios.target, scenarios.minimum, scenarios.maximum))
    request = max(25, round(float(scenarios.request[row]) * min(1.0, 800.0 / float(scenarios.base[row]))))
    levels = demand(scenarios, row, hours, noise)
    first = max(minimum, min(maximum, -(-round(levels[0] * 100) // (request * target))))
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
  start-delay: {max(5, int(scenarios.start[row]))}s
"""
    components = COMPONENTS.get(policy, ("hpa", "recommender", "updater", "admission"))
    settings: dict[str, dict[str, Any]] = {
        "hpa": {"coordinate": policy == "followed"},
        "recommender": {
            "hpa_conflicts": HpaConflicts.IGNORE if policy == "upstream" else HpaConflicts.COORDINATE,
            "interval": INTERVAL,
            "checkpoint_interval": timedelta(hours=1),
        },
        "updater": {"interval": INTERVAL},
        # A webhook in the same process needs no proof every ten seconds that it lives.
        "admission": {"lease_period": timedelta(seconds=30), "probe_webhook": False},
    }
    if policy == "sizes":
        settings["recommender"]["margin_fraction"] = 100 / target - 1
    requested: list[list[int]] = []
    counts: list[int] = []
    async with Cluster(scenario=scenario, seed=row) as cluster:
        await cluster.apply(crds.load("verticalpodautoscalers"), crds.load("verticalpodautoscalercheckpoints"))
        if "hpa" in components:
            await cluster.apply(make_hpa("web", minimum=minimum, maximum=maximum, cpu_percent=target))
        if "recommender" in components:
            await cluster.apply(make_vpa("web", mode="InPlaceOrRecreate"))
        cluster.set_load("web", levels[0] / PER_REQUEST)
        await cluster.start(*components, **{name: settings[name] for name in components if name in settings})
        for level in levels:
            cluster.set_load("web", level / PER_REQUEST)
            await cluster.run_for(timedelta(minutes=1))
            requested.append([_request(pod) for pod in cluster.ready_pods()])
            counts.append(int(cluster.get("Deployment", "web")["spec"]["replicas"]))
    counted = list(zip(levels, (sum(pods) for pods in requested), strict=True))[min(WARM_MINUTES, len(levels) // 2) :]
    sizes = [round(sum(pods) / max(len(pods), 1)) for pods in requested]
    return Outcome(
        row=row,
        shape=SHAPES[int(scenarios.shape[row])],
        policy=policy,
        cost=sum(has for _, has in counted) / (sum(level for level, _ in counted) * 100 / target),
        short=sum(has < level for level, has in counted) / len(counted),
        missed=sum(has * target * (1.0 + TOLERANCE) < level * 100 for level, has in counted) / len(counted),
        reversals=reversals(counts[-len(counted) :]) * 60 / len(counted),
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


def better(found: Sequence[Outcome]) -> dict[int, Outcome]:
    """Return the better single dimension by scenario: the cheaper of those that keep the target, else the dearer one.

    What misses the target by more than the HPA's tolerance, or leaves demand uncovered for longer, is cheap in vain.
    """
    singles: dict[int, list[Outcome]] = {}
    for one in found:
        if one.policy in ("counts", "sizes"):
            singles.setdefault(one.row, []).append(one)
    chosen = {}
    for row, pair in singles.items():
        if len(pair) == 2:
            kept = [one for one in pair if one.cost * (1.0 + TOLERANCE) >= 1.0]
            chosen[row] = (
                min(kept, key=lambda one: one.cost + 20 * one.short) if kept else max(pair, key=lambda one: one.cost)
            )
    return chosen


def dearer(found: Sequence[Outcome]) -> set[tuple[int, str]]:
    """Return the runs that a single dimension which keeps the target as well undercuts by more than 5 %.

    As in the model: a size that lags behind a rising load, or a count that rests above its target, is cheap because it
    leaves the target.
    """
    singles = [one for one in found if one.policy in ("counts", "sizes")]
    return {
        (own.row, own.policy)
        for own in found
        for single in singles
        if single.row == own.row
        and single.missed <= own.missed + AS_WELL
        and single.short <= own.short + LATER
        and own.cost > 1.05 * single.cost
    }


def drifted(one: Outcome) -> bool:
    """Return whether a count ended elsewhere than it was at half of the time: by a quarter, or at the maximum."""
    before, after = one.replicas[len(one.replicas) // 2], one.replicas[-1]
    return max(before, after) > 1.25 * min(before, after) + 1 or before < one.maximum <= after


def report(found: Sequence[Outcome]) -> list[str]:
    """Return a table of what was found."""
    chosen, dear = better(found), dearer(found)
    heads = (
        "runs",
        "cost",
        "/better",
        ">5 %",
        "kept",
        "missed",
        "short",
        "shorter",
        "turns/h",
        "most",
        "at max",
        "drifted",
    )
    lines = ["".join([f"{'':<10}{'shape':<10}", *(f"{head:>9}" for head in heads)])]
    for policy in dict.fromkeys(one.policy for one in found):
        for shape in ("all", *SHAPES):
            some = [one for one in found if one.policy == policy and shape in ("all", one.shape)]
            ratios = [one.cost / chosen[one.row].cost for one in some if one.row in chosen]
            shorter = [one.short > chosen[one.row].short + 0.001 for one in some if one.row in chosen]
            if not ratios:
                continue
            turns = [one.reversals for one in some]
            row = [
                f"{len(some)}",
                *(f"{number:.3f}" for number in (np.mean([one.cost for one in some]), np.mean(ratios))),
                f"{np.mean([ratio > 1.05 for ratio in ratios]):.1%}",
                f"{np.mean([(one.row, policy) in dear for one in some]):.1%}",
                f"{np.mean([one.missed for one in some]):.2%}",
                f"{np.mean([one.short for one in some]):.2%}",
                f"{np.mean(shorter):.1%}",
                *(f"{number:.2f}" for number in (np.mean(turns), max(turns))),
                f"{np.mean([one.replicas[-1] >= one.maximum for one in some]):.1%}",
                f"{np.mean([drifted(one) for one in some]):.1%}",
            ]
            lines.append("".join([f"{policy:<10}{shape:<10}", *(f"{text:>9}" for text in row)]))
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--hours", type=float, default=4)
    parser.add_argument("--noise", type=float, default=0.06)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="begin with this scenario, where several processes share them"
    )
    pieces.add_options(parser)
    given = parser.parse_args()
    scenarios = Scenarios.draw(given.scenarios, given.seed)
    found = pieces.known(given, Outcome)
    done = {(one.row, one.policy) for one in found}
    wanted = [(row, policy) for row in range(given.first, given.scenarios) for policy in given.policies.split(",")]
    left = [work for work in wanted if work not in done]
    found += pieces.play_all(partial(play, scenarios, given.hours, given.noise), left, given)
    print(f"{len(found)} of {len(wanted)} runs", *report(found), sep="\n")


if __name__ == "__main__":
    main()
