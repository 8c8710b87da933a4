"""How big pods are that an HPA counts by CPU utilization, and when that may change.

    count at a demand     n = demand ÷ (size × target), within minReplicas and maxReplicas
    what a size costs     size × mean of n over the hours of the last day, against demand ÷ target

Count and size answer for one product, so any size would do, and two controllers that both look at utilization chase
each other through all of them. Here the size is chosen once, by the count that the workload should have at its peak:

    at least     minReplicas, and so many that a pod is not larger than half a node
    at most      three quarters of maxReplicas: what is left is for peaks that nobody has seen
    between      a load that moves wants small pods, since half a pod is wasted on average; but every pod has a price.
                 It is such that about 16 pods are best where pods start within half a minute, 8 where they take five:
                 the slower the start, the more each step of the count has to bring. A count near the present one is
                 preferred.

At that count the size is peak ÷ (count × target), so an autoscaler at rest stays at rest. A size is kept until another
one is better by 3 % of what the workload has to pay anyway, or until the count comes near maxReplicas. It moves at most
once an hour, by half or double at most, and only while the count is at rest; growing for want of room under
maxReplicas does not wait, since it cannot hurt.

Smaller pods in greater number are first announced (`planned`), with how many of them the demand takes (`count`): the
autoscaler goes to that count, and only when the pods are there do they shrink. The count is taken once, from the demand
and not from how busy pods are, and holds until all pods have the new size, so that neither noise nor pods of two sizes
turn it around; it rises only with a load that leaves the tolerance. Where nobody follows the announcement, pods shrink
by as much as the present count can carry at 90 %.

Workloads are rows: the recommender has a row for each, the model of `benchmarks/plan_model.py` ten thousand.
"""

from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.coordination.demand import Demand

Mask = npt.NDArray[np.bool_]

REST_SECONDS: Final = 300
"""How long a count has to be the same."""
CONSIDER_SECONDS: Final = 600
SETTLE_SECONDS: Final = 3600
"""How long a size stays, and how much has to be known before the first change."""
PATIENCE_SECONDS: Final = 600
BETTER: Final = 0.03
LARGEST_STEP: Final = 2.0
TOLERANCE: Final = 0.1
"""How far from its target an autoscaler leaves a count alone, unless it is told otherwise."""
SAFE_SHARE: Final = 0.9
"""How much of its requests a workload may use just after its pods shrank."""
HEADROOM: Final = 0.75
"""Which part of maxReplicas a size is chosen for."""
CROWDED: Final = 0.9
"""Which part of maxReplicas is too near."""
QUICK_START, SLOW_START = 30.0, 300.0
QUICK_COUNT, SLOW_COUNT = 16.0, 8.0
PER_STEP: Final = 0.03
"""What each step of a quarter octave away from the present count has to save: as much as a move at all."""
_QUARTERS: Final = np.arange(-12, 13)
# 2^(1/4) by two square roots, which are the same on every CPU.
_FOURTH: Final = float(np.sqrt(np.sqrt(2.0)))
_FINE: Final = np.array([1.0, _FOURTH, _FOURTH * _FOURTH, _FOURTH * _FOURTH * _FOURTH])
_RATIOS: Final[Floats] = np.ldexp(_FINE[_QUARTERS % 4], _QUARTERS // 4)
_ROUNDING: Final = 1e-9


class SizeReason(IntEnum):
    """Why a size is what it is."""

    UNKNOWN = 0
    KEPT = 1
    SETTLING = 2
    NOT_AT_REST = 3
    CHEAPER = 4
    CROWDED = 5
    ANNOUNCED = 6
    FOLLOWED = 7
    STEPPED = 8
    GIVEN_UP = 9


WORDS: Final = {
    SizeReason.UNKNOWN: "too little is known of its demand",
    SizeReason.KEPT: "no other size is better by 3 %",
    SizeReason.SETTLING: "the size changed, or the workload was first seen, less than an hour ago",
    SizeReason.NOT_AT_REST: "the number of pods is changing",
    SizeReason.CHEAPER: "another size wastes less",
    SizeReason.CROWDED: "the number of pods was near maxReplicas",
    SizeReason.ANNOUNCED: "smaller pods are announced and wait until there are enough of them",
    SizeReason.FOLLOWED: "there are enough pods now for smaller ones",
    SizeReason.STEPPED: "the number of pods did not follow, so pods shrink by what it can carry",
    SizeReason.GIVEN_UP: "the number of pods did not follow, and cannot carry smaller ones",
}
MOVES: Final = frozenset({SizeReason.CHEAPER, SizeReason.CROWDED, SizeReason.FOLLOWED, SizeReason.STEPPED})
"""Reasons for which the size of pods changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizontal:
    """The horizontal side of workloads: what their HPA wants, and where it is."""

    target: Floats
    """Utilization as a share of requests, such as 0.7."""
    minimum: Floats
    maximum: Floats
    replicas: Floats
    """Pods that there are."""
    rested_seconds: Floats
    """How long the count has been what the HPA wants."""
    start_seconds: Floats
    """How long a pod takes to become ready."""
    largest: Floats
    """What one pod may request at most, by its policy and half a node; infinite: anything."""
    smallest: Floats
    resized: Mask
    """Whether all pods have the size that was decided last."""

    def select(self, rows: Ints) -> "Horizontal":
        """Return some of the rows."""
        return Horizontal(
            target=self.target[rows],
            minimum=self.minimum[rows],
            maximum=self.maximum[rows],
            replicas=self.replicas[rows],
            rested_seconds=self.rested_seconds[rows],
            start_seconds=self.start_seconds[rows],
            largest=self.largest[rows],
            smallest=self.smallest[rows],
            resized=self.resized[rows],
        )


class Sizes:
    """The size of a pod in each workload, in millicores, and what is about to become of it."""

    def __init__(self, size: Floats, at_seconds: int) -> None:
        rows = size.size
        self.size: Floats = size.astype(np.float64)
        """What pods request."""
        self.planned: Floats = self.size.copy()
        """What pods are about to request: less than `size` while smaller pods are announced."""
        self.count: Floats = np.zeros(rows)
        """How many pods the horizontal side has to have until all have the planned size; 0: what it likes."""
        self.moved: Ints = np.full(rows, at_seconds, dtype=np.int64)
        self.announced: Ints = np.zeros(rows, dtype=np.int64)
        self.considered: Ints = np.full(rows, at_seconds, dtype=np.int64)
        self.reason: Ints = np.full(rows, SizeReason.SETTLING, dtype=np.int64)

    def decide(self, demand: Demand, horizontal: Horizontal, at_seconds: int) -> Ints:
        """Move what has to move; return the reason for each row."""
        announced = self.planned < self.size
        self._follow(np.flatnonzero(announced), demand, horizontal, at_seconds)
        waited = at_seconds - self.moved > PATIENCE_SECONDS
        self.count[~announced & (horizontal.resized | waited)] = 0.0
        known = ~np.isnan(demand.smoothed) & (demand.smoothed > 0.0) & (self.size > 0.0)
        self.reason[~announced & ~known] = SizeReason.UNKNOWN
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = demand.smoothed / (self.size * horizontal.target)
        crowded = known & (wanted > CROWDED * horizontal.maximum)
        rested = horizontal.rested_seconds >= REST_SECONDS
        settled = at_seconds - np.maximum(self.moved, demand.since) >= SETTLE_SECONDS
        due = known & ~announced & (at_seconds - self.considered >= CONSIDER_SECONDS)
        calm = due & ~crowded
        self.reason[calm & ~rested] = SizeReason.NOT_AT_REST
        self.reason[calm & ~settled] = SizeReason.SETTLING
        rows = np.flatnonzero(due & (crowded | (settled & rested)))
        if rows.size:
            self._consider(rows, demand, horizontal.select(rows), crowded[rows], at_seconds)
        return self.reason

    def _follow(self, rows: Ints, demand: Demand, horizontal: Horizontal, at_seconds: int) -> None:
        """Shrink pods that are enough by now, and what has waited too long by as much as it can."""
        if not rows.size:
            return
        here, planned, size = horizontal.select(rows), self.planned[rows], self.size[rows]
        before = np.minimum(self.count[rows], here.maximum)
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = demand.smoothed[rows] / (planned * here.target)
        needed = np.where(wanted > (1.0 + TOLERANCE) * before, counts(demand.smoothed[rows], planned, here), before)
        enough = here.replicas >= needed
        late = ~enough & (at_seconds - self.announced[rows] > PATIENCE_SECONDS + 2.0 * here.start_seconds)
        carried = demand.smoothed[rows] / (SAFE_SHARE * np.maximum(here.replicas, 1.0))
        step = np.maximum(planned, carried)
        stepped = late & (step < (1.0 - BETTER) * size)
        moved = enough | stepped
        self.size[rows] = np.where(enough, planned, np.where(stepped, step, size))
        self.planned[rows] = np.where(moved | late, self.size[rows], planned)
        self.count[rows] = np.where(late, 0.0, needed)
        self.moved[rows[moved | late]] = at_seconds
        self.reason[rows] = np.select(
            [enough, stepped, late],
            [SizeReason.FOLLOWED, SizeReason.STEPPED, SizeReason.GIVEN_UP],
            default=SizeReason.ANNOUNCED,
        )

    def _consider(self, rows: Ints, demand: Demand, here: Horizontal, crowded: Mask, at_seconds: int) -> None:
        size = self.size[rows]
        best, saves = best_sizes(demand.peaks[rows], demand.smoothed[rows], size, here)
        grows, shrinks = best > size, (best < size) & ~crowded
        moves = (grows | shrinks) & (crowded | (saves > BETTER))
        planned = np.where(moves, best, size)
        number = counts(demand.smoothed[rows], planned, here)
        waits = moves & shrinks & (here.replicas < number)
        self.size[rows] = np.where(waits, size, planned)
        self.planned[rows] = planned
        self.count[rows] = np.where(waits, number, 0.0)
        self.considered[rows] = at_seconds
        self.moved[rows[moves & ~waits]] = at_seconds
        self.announced[rows[waits]] = at_seconds
        self.reason[rows] = np.select(
            [waits, moves & crowded, moves],
            [SizeReason.ANNOUNCED, SizeReason.CROWDED, SizeReason.CHEAPER],
            default=SizeReason.KEPT,
        )


def counts(demand: Floats, size: Floats, here: Horizontal) -> Floats:
    """Return how many pods of a size a demand takes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.ceil(demand / (size * here.target) - _ROUNDING)
    bounded: Floats = np.clip(np.nan_to_num(wanted, nan=1.0), here.minimum, here.maximum)
    return bounded


def preferred_count(start_seconds: Floats) -> Floats:
    """Return how many pods are best for a load that moves."""
    slow = (np.clip(start_seconds, QUICK_START, SLOW_START) - QUICK_START) / (SLOW_START - QUICK_START)
    preferred: Floats = QUICK_COUNT + (SLOW_COUNT - QUICK_COUNT) * slow
    return preferred


def best_sizes(peaks: Floats, now: Floats, size: Floats, here: Horizontal) -> tuple[Floats, Floats]:
    """Return the best size for each workload, and what it saves as a share of demand ÷ target.

    Candidates are the sizes at which the peak takes a whole number of pods, up to three octaves around the preferred
    number, and the one at which it takes the present number.
    """
    peak = np.fmax(np.fmax.reduce(peaks, axis=1), now)
    preferred = preferred_count(here.start_seconds)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.maximum(np.maximum(here.minimum, np.ceil(peak / (here.target * here.largest))), 1.0)
    most = np.maximum(np.floor(HEADROOM * here.maximum), 1.0)
    most = np.maximum(most, np.minimum(least, here.maximum))
    least = np.minimum(least, most)
    kept, present = _kept(peaks, size, here)
    tried = np.concatenate([np.rint(preferred[:, None] * _RATIOS), present[:, None]], axis=1)
    number = np.clip(tried, least[:, None], most[:, None])
    sizes = np.clip(peak[:, None] / (number * here.target[:, None]), here.smallest[:, None], here.largest[:, None])
    sizes = np.clip(sizes, size[:, None] / LARGEST_STEP, size[:, None] * LARGEST_STEP)
    cost = _cost(peaks, sizes, here)
    places = np.searchsorted(_RATIOS, number / preferred[:, None])
    away = np.abs(places - np.searchsorted(_RATIOS, present / preferred)[:, None])
    per_pod = 1.0 / (2.0 * preferred * preferred)
    at = np.argmin(cost + per_pod[:, None] * number + PER_STEP * away, axis=1)[:, None]
    best = np.take_along_axis(sizes, at, axis=1)[:, 0]
    saves = kept - np.take_along_axis(cost, at, axis=1)[:, 0]
    # Whatever it costs, a size beyond its bounds is not kept, nor one that leaves no room below maxReplicas.
    outside = (size > here.largest) | (size < here.smallest) | (present > CROWDED * here.maximum)
    return best, np.where(outside, np.inf, saves)


def _cost(peaks: Floats, sizes: Floats, here: Horizontal) -> Floats:
    """Return what the hours of a day cost with pods of these sizes, over demand ÷ target."""
    known = ~np.isnan(peaks)
    target = here.target[:, None]
    paid = np.zeros_like(sizes)
    for hour in range(peaks.shape[1]):
        if known[:, hour].any():
            wanted = np.ceil(np.where(known[:, hour], peaks[:, hour], 0.0)[:, None] / (sizes * target) - _ROUNDING)
            number = np.clip(wanted, here.minimum[:, None], here.maximum[:, None])
            paid += np.where(known[:, hour][:, None], number, 0.0)
    cost: Floats = paid * sizes * (here.target / _total(peaks))[:, None]
    return cost


def _kept(peaks: Floats, size: Floats, here: Horizontal) -> tuple[Floats, Floats]:
    """Return what the hours of a day cost with pods as they are, over demand ÷ target, and the highest count.

    An autoscaler leaves a count alone that is within the tolerance. So a peak that is one percent above all that were
    seen before takes no pod more, which would make a size look wasteful that is not. The day is gone through twice, so
    that the count it begins with is that of an evening.
    """
    count, paid, highest = np.clip(here.replicas, here.minimum, here.maximum), np.zeros_like(size), np.zeros_like(size)
    for again, hour in product((False, True), range(peaks.shape[1])):
        wanted = peaks[:, hour] / (size * here.target)
        # Comparisons with an hour that is not known are false.
        leaves = np.abs(wanted - count) > TOLERANCE * count
        count = np.where(leaves, np.clip(np.ceil(wanted - _ROUNDING), here.minimum, here.maximum), count)
        if again:
            highest = np.maximum(highest, count)
            paid += np.where(np.isnan(wanted), 0.0, count)
    cost: Floats = paid * size * here.target / _total(peaks)
    return cost, highest


def _total(peaks: Floats) -> Floats:
    """Return the demand of the hours that are known."""
    total: Floats = np.maximum(np.where(np.isnan(peaks), 0.0, peaks).sum(axis=1), _ROUNDING)
    return total
