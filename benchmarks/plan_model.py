"""Ten thousand random workloads under counts and sizes at once, in a vectorised model: does the pair spiral?

    python -m benchmarks.plan_model [--scenarios 10000] [--hours 24] [--seed 1]

Each scenario is a workload with an HPA on CPU utilization (target 30 to 90 %) and pods that take 5 to 300 s to start,
under a load that is constant, steps, ramps, follows the day or comes in bursts; the request it begins with is up to
four times too large or too small. Decided by

    counts     the HPA alone, with the request the workload began with
    sizes      the size alone, at the number of pods the workload began with: hourly, p90 of the last day ÷ target
    upstream   the HPA, and beside it hourly p90 of a pod's own usage plus 15 %, as upstream's VPA sizes it
    followed   `--hpa-conflicts=coordinate`, and an HPA that follows announcements (`--hpa-coordinate`)
    alone      `--hpa-conflicts=coordinate` beside an HPA that knows nothing of it

Counts come from `hpa.core.quick.columns`, coordinated sizes from `vpa.recommender.core.coordination.sizing`: the
functions that decide in a cluster. A pod can use what it requests; what waits longer than 1 s is late. Costs are
requested cores over demand ÷ target, after the first quarter of the time.
"""

import argparse
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubetide.hpa.core.quick.columns import AutoscalerColumns, PodColumns, propose_utilization
from kubetide.hpa.core.replicas import Tolerance
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.coordination.demand import Demand
from kubetide.vpa.recommender.core.coordination.sizing import Horizontal, Sizes

STEP = 15
MOST_WAIT, LATE = 60.0, 1.0
PRICE = 20.0
TOLERANCE = 0.1
SHAPES = ("constant", "step", "ramp", "diurnal", "bursts")
POLICIES = ("counts", "sizes", "upstream", "followed", "alone")
SMALLEST, NODE = 25.0, 4000.0
AS_WELL, LATER = 0.01, 0.001
"""By which share of the time and of the work a policy may be behind another one and still do as well."""
_PAST = 1440

BoolColumn = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Workloads, one row each."""

    shape: Ints
    target: Ints
    start: Ints
    minimum: Ints
    maximum: Ints
    request: Floats
    base: Floats
    numbers: Floats
    """Four random numbers each, which shape the load."""
    seed: int

    @classmethod
    def draw(cls, count: int, seed: int) -> "Scenarios":
        """Draw scenarios."""
        rng = np.random.default_rng(seed)
        target = rng.integers(30, 91, count)
        base = 200.0 * 2.0 ** rng.uniform(0, 6, count)
        pods = rng.integers(3, 13, count)
        request = base * 100 / (target * pods) * 2.0 ** rng.uniform(-2, 2, count)
        return cls(
            shape=np.arange(count) % len(SHAPES),
            target=target,
            start=rng.integers(5, 301, count),
            minimum=rng.integers(1, 4, count),
            maximum=rng.integers(12, 61, count),
            request=np.maximum(np.rint(request), SMALLEST),
            base=base,
            numbers=rng.random((count, 4)),
            seed=seed,
        )

    def level(self, at: float) -> Floats:
        """Return the demand in millicores at a time, before noise."""
        first, second, third, fourth = self.numbers.T
        hours = at / 3600.0
        stepped = np.where(hours > 6 + 30 * first, 0.4 + 2.1 * second, 1.0)
        ramped = 1.0 + (2.0 * second - 0.5) * np.clip((hours - 6 - 20 * first) / (1 + 12 * third), 0.0, 1.0)
        daily = 1.0 + (0.2 + 0.6 * second) * np.sin(2 * np.pi * (hours / 24.0 + first))
        period, width = 1800 + 12600 * third, 120 + 900 * fourth
        burst = np.where((at + 7200 * first) % period < width, 1.0 + 2.0 * second, 1.0)
        by_shape = np.stack([np.ones_like(first), stepped, ramped, daily, burst])
        levels: Floats = self.base * np.take_along_axis(by_shape, self.shape[None], axis=0)[0]
        return levels


class _Pods:
    """Pods that are asked for, starting or ready, what they request, and the work that waits for them."""

    def __init__(self, scenarios: Scenarios) -> None:
        wanted = np.ceil(scenarios.level(0.0) * 100 / (scenarios.request * scenarios.target))
        self.asked = np.clip(wanted, scenarios.minimum, scenarios.maximum).astype(np.int64)
        self.ready = self.asked.copy()
        self.size = scenarios.request.copy()
        self._delay = -(-scenarios.start // STEP)
        self._starting = np.zeros((int(self._delay.max()) + 1, self.asked.size), dtype=np.int64)
        self._all = np.arange(self.asked.size)
        self._step = 0
        self.queue = np.zeros(self.asked.size)

    def serve(self, demand: Floats) -> tuple[Floats, Floats]:
        """Do one step of work; return what was used in millicores, and what is late or lost of what arrived."""
        place = self._step % len(self._starting)
        self.ready += self._starting[place]
        self._starting[place] = 0
        self._step += 1
        capacity = self.ready * self.size
        work = self.queue + demand * STEP
        served = np.minimum(work, capacity * STEP)
        left = work - served
        self.queue = np.minimum(left, capacity * MOST_WAIT)
        late = np.where(self.queue > capacity * LATE, demand * STEP, 0.0)
        return served / STEP, np.minimum(late + left - self.queue, demand * STEP)

    def ask(self, wanted: Ints) -> None:
        """Ask for more pods, or fewer: those that start last go first."""
        change = wanted - self.asked
        slots = (self._step + self._delay) % len(self._starting)
        self._starting[slots, self._all] += np.maximum(change, 0)
        down = np.maximum(-change, 0)
        for back in range(len(self._starting)):
            if not down.any():
                break
            place = (self._step + len(self._starting) - 1 - back) % len(self._starting)
            taken = np.minimum(down, self._starting[place])
            self._starting[place] -= taken
            down = down - taken
        self.ready -= down
        self.asked = wanted.astype(np.int64)


@dataclass(slots=True)
class Figures:
    """What was counted, per scenario."""

    cost: Floats
    late: Floats
    missed: Floats
    """Share of the time in which utilization is above the target by more than the HPA's tolerance, over a minute."""
    reversals: Floats
    """Changes of direction of the count, per hour."""
    moves: Floats
    """Changes of the size, per day."""
    counts: Floats
    """The count at a third of the time and at the end."""
    sizes: Floats

    @property
    def price(self) -> Floats:
        """Cost with what is late priced in."""
        return self.cost + PRICE * self.late


def run(scenarios: Scenarios, policy: str, hours: float) -> Figures:
    """Run scenarios under a policy."""
    rows = scenarios.base.size
    pods = _Pods(scenarios)
    first = pods.asked.copy()
    counted = AutoscalerColumns(
        pods.asked,
        minimum=scenarios.minimum,
        maximum=scenarios.maximum,
        window_seconds=300,
        rules=None,
        at_seconds=0,
    )
    rng = np.random.default_rng(scenarios.seed + 1)
    demand, sizes = Demand(rows), Sizes(scenarios.request, 0)
    past = np.full((_PAST, rows), np.nan)
    used: deque[Floats] = deque([scenarios.level(0.0)] * 3, maxlen=3)
    rested, noise = np.zeros(rows), np.zeros(rows)
    direction = np.zeros(rows, dtype=np.int64)
    paid, needed, late, work, missed, reversals, moves = np.zeros((7, rows))
    steps, warm = int(hours * 3600 / STEP), int(hours * 900 / STEP)
    counts_seen, sizes_seen = [], []
    recent: Floats | None = None
    none = np.zeros(rows, dtype=np.int64)
    for step in range(steps):
        at = step * STEP
        noise += 0.1 * (-noise + 0.13 * rng.standard_normal(rows))
        arrived = scenarios.level(at) * np.maximum(1.0 + noise, 0.5)
        served, behind = pods.serve(arrived)
        used.append(served)
        if step >= warm:
            paid += pods.asked * pods.size
            needed += arrived * 100 / scenarios.target
            late += behind / STEP
            work += arrived
            recent = arrived if recent is None else recent + STEP / 60 * (arrived - recent)
            missed += recent * 100 > pods.ready * pods.size * scenarios.target * (1.0 + TOLERANCE)
        if policy != "sizes":
            columns = PodColumns(
                used_millis=np.rint((used[0] + used[1]) / 2).astype(np.int64),
                ready=pods.ready,
                unready=np.maximum(pods.asked - pods.ready, 0),
                missing=none,
                request_millis=np.maximum(np.rint(pods.size), 1).astype(np.int64),
            )
            proposal = propose_utilization(
                columns, target=scenarios.target, current=pods.asked, tolerance=Tolerance(down=TOLERANCE, up=TOLERANCE)
            )
            if policy == "followed":
                proposal = np.maximum(proposal, sizes.count.astype(np.int64))
            wanted = counted.decide(proposal, pods.asked, at_seconds=at + STEP)
            sign = np.sign(wanted - pods.asked)
            if sign.any():
                pods.ask(wanted)
            turned = (sign != 0) & (direction != 0) & (sign != direction)
            if step >= warm:
                reversals += turned
            direction = np.where(sign != 0, sign, direction)
            rested = np.where(sign != 0, 0.0, rested + STEP)
        if at % 60 == 0 and policy != "counts":
            before = pods.size.copy()
            if policy in ("followed", "alone"):
                demand.add(served, at + STEP)
                sizes.decide(demand, _horizontal(scenarios, pods, rested), at + STEP)
                pods.size = sizes.size.copy()
            else:
                per_pod = served / np.maximum(first if policy == "sizes" else pods.ready, 1)
                past[at // 60 % _PAST] = per_pod
                if at and at % 3600 == 0:
                    high = np.nanpercentile(past, 90, axis=0) if at < 86400 else np.percentile(past, 90, axis=0)
                    by = 100 / scenarios.target if policy == "sizes" else 1.15
                    pods.size = np.maximum(high * by, SMALLEST)
            if step >= warm:
                moves += np.abs(pods.size - before) > 0.01 * before
        if step in (steps // 3, steps - 1):
            counts_seen.append(pods.asked.astype(np.float64))
            sizes_seen.append(pods.size.copy())
    counted_hours = (steps - warm) * STEP / 3600
    return Figures(
        cost=paid / needed,
        late=late / work,
        missed=missed / (steps - warm),
        reversals=reversals / counted_hours,
        moves=moves / counted_hours * 24,
        counts=np.stack(counts_seen),
        sizes=np.stack(sizes_seen),
    )


def _horizontal(scenarios: Scenarios, pods: _Pods, rested: Floats) -> Horizontal:
    return Horizontal(
        target=scenarios.target / 100,
        minimum=scenarios.minimum.astype(np.float64),
        maximum=scenarios.maximum.astype(np.float64),
        replicas=pods.ready.astype(np.float64),
        rested_seconds=rested,
        start_seconds=scenarios.start.astype(np.float64),
        largest=np.full(rested.size, NODE),
        smallest=np.full(rested.size, SMALLEST),
        resized=np.ones(rested.size, dtype=np.bool_),
    )


def better(found: dict[str, Figures]) -> tuple[Floats, Floats]:
    """Return cost and lateness of the better single dimension, scenario by scenario.

    One that is cheap because it misses the target by more than the HPA's tolerance, at maxReplicas say, is not better.
    """
    counts, sizes = found["counts"], found["sizes"]
    misses = counts.cost * (1.0 + TOLERANCE) < 1.0
    horizontal = (counts.price <= sizes.price) & ~misses
    return np.where(horizontal, counts.cost, sizes.cost), np.where(horizontal, counts.late, sizes.late)


def dearer(found: dict[str, Figures], policy: str) -> BoolColumn:
    """Return where a single dimension that keeps the target as well costs less by more than 5 %.

    A size that lags behind a rising load, or a count at maxReplicas, is cheap because it leaves the target: what it
    would take to keep it is not known, and it is not compared with.
    """
    own = found[policy]
    exceeds = np.zeros(own.cost.size, dtype=np.bool_)
    for single in (found["counts"], found["sizes"]):
        keeps = (single.missed <= own.missed + AS_WELL) & (single.late <= own.late + LATER)
        exceeds |= keeps & (own.cost > 1.05 * single.cost)
    return exceeds


def drifted(scenarios: Scenarios, figures: Figures) -> Ints:
    """Return which scenarios of constant load ended elsewhere than they were at a third of the time, by a quarter."""
    before, after = figures.counts
    constant = scenarios.shape == SHAPES.index("constant")
    moved = np.maximum(before, after) > 1.25 * np.minimum(before, after) + 1
    at_bound = (after >= scenarios.maximum) & (before < scenarios.maximum)
    return np.flatnonzero(constant & (moved | at_bound))


def report(scenarios: Scenarios, found: dict[str, Figures]) -> list[str]:
    """Return a table of what was found."""
    cost, late = better(found)
    heads = ("cost", "/better", ">5 %", "kept", "missed", "late", "later", "turns/h", "moves/d")
    lines = ["".join([f"{'':<10}{'shape':<10}", *(f"{head:>9}" for head in heads)])]
    for policy, figures in found.items():
        dear = dearer(found, policy)
        for number, shape in [(-1, "all"), *enumerate(SHAPES)]:
            at = scenarios.shape == number if number >= 0 else np.ones(cost.size, dtype=bool)
            ratio = (figures.cost / cost)[at]
            later = (figures.late - late)[at] > 0.001
            most = figures.reversals[at].max() if shape == "constant" else figures.reversals[at].mean()
            row = [
                *(f"{number:.3f}" for number in (figures.cost[at].mean(), ratio.mean())),
                *(f"{share:.1%}" for share in ((ratio > 1.05).mean(), dear[at].mean())),
                *(f"{share:.2%}" for share in (figures.missed[at].mean(), figures.late[at].mean())),
                f"{later.mean():.1%}",
                *(f"{number:.2f}" for number in (most, figures.moves[at].mean())),
            ]
            lines.append("".join([f"{policy:<10}{shape:<10}", *(f"{text:>9}" for text in row)]))
        lines.append(f"{policy:<10}drifted at constant load: {drifted(scenarios, figures).size}")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenarios", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    scenarios = Scenarios.draw(given.scenarios, given.seed)
    found = {policy: run(scenarios, policy, given.hours) for policy in POLICIES}
    for line in report(scenarios, found):
        print(line)


if __name__ == "__main__":
    main()
