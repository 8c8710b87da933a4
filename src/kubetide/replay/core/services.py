"""Replica counts in a closed loop with demand: pods that take time to start, a queue, and what is measured on them.

A pod serves some time after it was asked for, costs from then on, and is gone at once when it is given up, starting
ones first. What ready pods cannot do waits in one queue; what would wait longer than a minute is lost. Where demand is
not known nothing is served, and nothing is counted.

    under seconds        seconds per day in which demand exceeds ready capacity
    late, lost           share of demand that arrives while the wait exceeds 1 s; share lost
    replica-hours        pods asked for, over the clairvoyant minimum Σ max(1, ⌈demand⌉)
    reversals, changes   per hour
    cost                 replica-hours ÷ minimum + 20 × (late + lost); geometric mean over services
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kubetide.api.objects.hpa import Behavior, ScalingRules
from kubetide.api.values.quantity import quantity_float
from kubetide.hpa.core.behavior import complete_rules
from kubetide.hpa.core.headroom.advice import Headroom, Terms
from kubetide.hpa.core.quick.columns import AutoscalerColumns, PodColumns, propose_utilization
from kubetide.hpa.core.replicas import Tolerance
from kubetide.replay.core.figures import summed
from kubetide.replay.core.spec import Replicas
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.powers import power

STEP_SECONDS = 15
START_SECONDS = 30
MOST_WAIT_SECONDS = 60.0
LATE_SECONDS = 1.0
PRICE = 20.0
_DOWN_WINDOW = 300
_STRETCH = 240
"""Steps that are counted together."""
SAFE_PERCENT = 70
_SUMS = ("seconds", "under", "work", "late", "lost", "replicas", "least", "reversals", "changes")
_FIGURES = (
    "services", "replica_cost", "replica_hours", "replica_core_hours", "replicas_to_minimum", "late", "lost",
    "under_seconds", "reversals", "replica_changes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Demand of services in pods' worth, one column each, one line per 15 s; NaN where it is not known."""

    names: tuple[str, ...]
    demand: Floats
    start_seconds: int
    pod_cores: Floats
    skip: Ints
    """Lines of each service before counting begins."""
    recorded: Sequence[tuple[Floats, Floats]] = ()
    """Of each service: from which seconds on how many replicas were wanted; nothing where that is not known."""


Mask = npt.NDArray[np.bool_]


class _Counts(Protocol):
    """Decides counts after each step."""

    def decide(self, at_seconds: int, used: Floats, arrived: Floats, ready: Ints, asked: Ints, known: Mask) -> Ints:
        """Return the counts to ask for, from pods' worth of work done and arrived where that is known."""


class _Autoscalers:
    """The HPA's rule on CPU utilization, on the mean of the two steps before the last, as metrics arrive late."""

    def __init__(self, spec: Replicas, percent: int, first: Ints, at_seconds: int) -> None:
        rules = None if spec.behavior is None else complete_rules(spec.behavior, timedelta(seconds=_DOWN_WINDOW))
        self._columns = AutoscalerColumns(
            first,
            minimum=spec.min,
            maximum=spec.max,
            window_seconds=_DOWN_WINDOW,
            rules=rules,
            at_seconds=at_seconds,
        )
        self._percent = percent
        behavior = spec.behavior or Behavior()
        self._tolerance = Tolerance(
            down=_tolerance(behavior.scale_down, spec.tolerance), up=_tolerance(behavior.scale_up, spec.tolerance)
        )
        self._used: deque[Floats] = deque([np.zeros(first.size)] * 3, maxlen=3)
        self._none = np.zeros(first.size, dtype=np.int64)
        self._request = np.full(first.size, 1000, dtype=np.int64)

    def decide(self, at_seconds: int, used: Floats, arrived: Floats, ready: Ints, asked: Ints, known: Mask) -> Ints:
        # Nobody measures in a gap: the counts stay, and what was used last is what is known after it.
        self._used.append(np.where(known, used, self._used[-1]))
        pods = PodColumns(
            used_millis=np.rint((self._used[0] + self._used[1]) * 500.0).astype(np.int64),
            ready=ready,
            unready=np.maximum(asked - ready, 0),
            missing=self._none,
            request_millis=self._request,
        )
        proposal = propose_utilization(pods, target=self._percent, current=asked, tolerance=self._tolerance)
        return self._columns.decide(np.where(known, proposal, asked), asked, at_seconds=at_seconds + STEP_SECONDS)


class _LearnedHeadroom:
    """Learned headroom, service by service."""

    def __init__(self, spec: Replicas, first: Ints, at_seconds: int, *, safe: bool) -> None:
        terms = Terms(step_seconds=STEP_SECONDS, start_seconds=START_SECONDS, minimum=spec.min, maximum=spec.max)
        self._headrooms = [Headroom(terms, replicas=int(count), floor=safe) for count in first]
        self._plain = _Autoscalers(spec, SAFE_PERCENT, first, at_seconds) if safe else None

    def decide(self, at_seconds: int, used: Floats, arrived: Floats, ready: Ints, asked: Ints, known: Mask) -> Ints:
        plain = None if self._plain is None else self._plain.decide(at_seconds, used, arrived, ready, asked, known)
        counts = asked.copy() if plain is None else plain
        # In a gap nothing is learned: it is no demand of 0.
        for place in np.flatnonzero(known).tolist():
            advice = self._headrooms[place].advise(
                at_seconds,
                float(arrived[place]),
                ready=int(ready[place]),
                asked=int(asked[place]),
                plain=None if plain is None else int(plain[place]),
            )
            if plain is None:
                counts[place] = advice.replicas
            elif advice.proven:
                counts[place] = max(int(plain[place]), advice.replicas)
        return counts


class _RecordedCounts:
    """The replicas that were wanted at the time."""

    def __init__(self, recorded: Sequence[tuple[Floats, Floats]]) -> None:
        changes = [
            (at, column, int(count))
            for column, (times, counts) in enumerate(recorded)
            for at, count in zip(times.tolist(), counts.tolist(), strict=True)
        ]
        self._changes = deque(sorted(changes))
        self.counts = np.array([counts[0] if counts.size else 0 for _, counts in recorded], dtype=np.int64)

    def decide(self, at_seconds: int, used: Floats, arrived: Floats, ready: Ints, asked: Ints, known: Mask) -> Ints:
        while self._changes and self._changes[0][0] <= at_seconds + STEP_SECONDS:
            _, column, count = self._changes.popleft()
            self.counts[column] = count
        return self.counts.copy()


def _tolerance(rules: ScalingRules | None, default: float) -> float:
    return default if rules is None or rules.tolerance is None else quantity_float(rules.tolerance)


def _policy(spec: Replicas, first: Ints, at_seconds: int) -> _Counts:
    if spec.headroom is not None:
        return _LearnedHeadroom(spec, first, at_seconds, safe=spec.headroom == "safe")
    assert spec.target is not None
    return _Autoscalers(spec, spec.target, first, at_seconds)


@dataclass(slots=True)
class LoadFigures:
    """What was counted, per service."""

    names: tuple[str, ...]
    pod_cores: Floats
    seconds: Floats
    under: Floats
    work: Floats
    late: Floats
    lost: Floats
    replicas: Floats
    least: Floats
    reversals: Floats
    changes: Floats
    counts: list[Ints] = field(default_factory=list)
    """The counts of every step, where somebody asked to keep them."""

    @property
    def sums(self) -> Floats:
        """Return everything but names and counts as one row each, to be kept."""
        return np.array([self.pod_cores, *(getattr(self, name) for name in _SUMS)])

    @classmethod
    def from_sums(cls, names: Sequence[str], sums: Floats) -> "LoadFigures":
        """Return figures that were kept."""
        return cls(names=tuple(names), pod_cores=sums[0], **dict(zip(_SUMS, sums[1:], strict=True)))

    @classmethod
    def joined(cls, parts: Sequence["LoadFigures"]) -> "LoadFigures":
        """Return the figures of services that were counted apart."""
        names = [name for part in parts for name in part.names]
        return parts[0] if len(parts) == 1 else cls.from_sums(names, np.concatenate([x.sums for x in parts], axis=1))

    @classmethod
    def of(cls, services: Services) -> "LoadFigures":
        """Return figures of nothing."""
        nothing: dict[str, Any] = {name: np.zeros(len(services.names)) for name in _SUMS}
        return cls(names=services.names, pod_cores=services.pod_cores, **nothing)

    def figures(self, drawn: Sequence[int] | None = None) -> dict[str, float]:
        """Return the figures of all services, or of those drawn."""
        at = np.flatnonzero(self.seconds > 0) if drawn is None else np.array(drawn, dtype=np.int64)
        at = at[(self.seconds[at] > 0) & (self.work[at] > 0)]
        if not at.size:
            return dict.fromkeys(_FIGURES, float("nan"))
        hours = self.seconds[at] / 3600.0
        late, lost = self.late[at] / self.work[at], self.lost[at] / self.work[at]
        relative = self.replicas[at] / self.least[at]
        replica_hours = self.replicas[at] * STEP_SECONDS / 3600.0
        return {
            "services": float(at.size),
            "replica_cost": _geometric_mean(relative + PRICE * (late + lost)),
            "replica_hours": float(replica_hours.sum()),
            "replica_core_hours": float((replica_hours * self.pod_cores[at]).sum()),
            "replicas_to_minimum": _geometric_mean(relative),
            "late": float(late.mean()),
            "lost": float(lost.mean()),
            "under_seconds": float((self.under[at] / hours * 24.0).mean()),
            "reversals": float((self.reversals[at] / hours).mean()),
            "replica_changes": float((self.changes[at] / hours).mean()),
        }


def replay_services(services: Services, spec: Replicas, *, keep: bool = False) -> LoadFigures:
    """Run the counts of a policy against the demand."""
    demand, found = services.demand, LoadFigures.of(services)
    known = ~np.isnan(demand)
    if spec.recorded:
        known &= np.array([counts.size > 0 for _, counts in services.recorded], dtype=np.bool_)
    begins = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    first_demand = np.nan_to_num(demand[begins, np.arange(demand.shape[1])])
    # It begins at about the right size, for every policy.
    asked = np.clip(np.ceil(first_demand / 0.6), spec.min, spec.max).astype(np.int64)
    policy: _Counts
    if spec.recorded:
        policy = recorded = _RecordedCounts(services.recorded)
        asked = recorded.counts.copy()
    else:
        policy = _policy(spec, asked, services.start_seconds)
    pods = _Pods(asked)
    direction = np.zeros(asked.size, dtype=np.int64)
    for begin in range(0, demand.shape[0], _STRETCH):
        here = known[begin : begin + _STRETCH]
        arrived = np.where(here, demand[begin : begin + _STRETCH], 0.0)
        stretch = _Stretch.of(here, arrived, begin)
        for line in range(len(arrived)):
            served = pods.serve(arrived[line])
            stretch.note(line, pods)
            at = services.start_seconds + (begin + line) * STEP_SECONDS
            wanted = policy.decide(at, served / STEP_SECONDS, arrived[line], pods.ready, pods.asked, here[line])
            if not spec.recorded:
                wanted = np.minimum(np.maximum(wanted, spec.min), spec.max)
            change = np.where(here[line], wanted - pods.asked, 0)
            stretch.change[line] = change
            if change.any():
                pods.change(change)
            if keep:
                found.counts.append(pods.asked.copy())
        direction = _count(found, stretch, services.skip, direction)
    return found


class _Pods:
    """Pods of every service that are asked for, starting or ready, and the work that waits for them."""

    def __init__(self, asked: Ints) -> None:
        self.asked, self.ready = asked, asked.copy()
        self._starting = [np.zeros_like(asked) for _ in range(START_SECONDS // STEP_SECONDS)]
        self._none = np.zeros_like(asked)
        self.queue, self.lost = np.zeros(asked.size), np.zeros(asked.size)

    def serve(self, arrived: Floats) -> Floats:
        """Do one step of work; return how much was done."""
        self.ready = self.ready + self._starting.pop(0)
        self._starting.append(self._none)
        work = self.queue + arrived * STEP_SECONDS
        served: Floats = np.minimum(work, self.ready * float(STEP_SECONDS))
        left = work - served
        self.queue = np.minimum(left, self.ready * MOST_WAIT_SECONDS)
        self.lost = left - self.queue
        return served

    def change(self, change: Ints) -> None:
        """Ask for more pods or fewer: those that start last go first."""
        self._starting[-1] = self._starting[-1] + np.maximum(change, 0)
        down = np.maximum(-change, 0)
        for place in range(len(self._starting) - 1, -1, -1):
            taken = np.minimum(down, self._starting[place])
            self._starting[place], down = self._starting[place] - taken, down - taken
        self.ready, self.asked = self.ready - down, self.asked + change


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """What was seen in some steps, one line each: counted together, since that takes far less time than one by one."""

    begin: int
    here: npt.NDArray[np.bool_]
    arrived: Floats
    asked: Ints
    ready: Ints
    change: Ints
    queue: Floats
    lost: Floats

    @classmethod
    def of(cls, here: npt.NDArray[np.bool_], arrived: Floats, begin: int) -> "_Stretch":
        """Return a stretch that nothing is noted in yet."""
        counts = [np.zeros(here.shape, dtype=np.int64) for _ in range(3)]
        queue, lost = np.zeros(here.shape), np.zeros(here.shape)
        asked, ready, change = counts
        return cls(
            begin=begin, here=here, arrived=arrived, asked=asked, ready=ready, change=change, queue=queue, lost=lost
        )

    def note(self, line: int, pods: _Pods) -> None:
        """Note what there is after a step of work."""
        self.asked[line], self.ready[line] = pods.asked, pods.ready
        self.queue[line], self.lost[line] = pods.queue, pods.lost


def _count(found: LoadFigures, seen: _Stretch, skip: Ints, direction: Ints) -> Ints:
    """Add a stretch to the figures; return the direction of the last change of each service."""
    lines = np.arange(seen.begin, seen.begin + len(seen.here))[:, None]
    counted = seen.here & (lines >= skip)
    with np.errstate(divide="ignore", invalid="ignore"):
        late = np.where(seen.ready > 0, seen.queue / seen.ready, np.inf) > LATE_SECONDS
    sign = np.sign(seen.change)
    # The direction before each line: that of the last change above it.
    above = np.concatenate([direction[None], sign])
    place = np.maximum.accumulate(np.where(above != 0, np.arange(len(above))[:, None], 0), axis=0)
    directions = np.take_along_axis(above, place, axis=0)
    before = directions[:-1]
    for total, amounts in (
        (found.seconds, counted * float(STEP_SECONDS)),
        (found.under, (counted & (seen.arrived > seen.ready + 1e-9)) * float(STEP_SECONDS)),
        (found.work, counted * seen.arrived * STEP_SECONDS),
        (found.late, (counted & late) * seen.arrived * STEP_SECONDS),
        (found.lost, np.where(counted, seen.lost, 0.0)),
        (found.replicas, (counted * seen.asked).astype(np.float64)),
        (found.least, np.where(counted, np.maximum(np.ceil(seen.arrived), 1.0), 0.0)),
        (found.changes, (counted & (sign != 0)).astype(np.float64)),
        (found.reversals, (counted & (sign != 0) & (before != 0) & (sign != before)).astype(np.float64)),
    ):
        total[:] = summed(np.concatenate([total[None], amounts]))
    last: Ints = directions[-1]
    return last


def _geometric_mean(values: Floats) -> float:
    """Return the geometric mean; every bit is the same on every CPU."""
    mean = 1.0
    for value in values.tolist():
        mean *= power(value, 1.0 / values.size)
    return mean
