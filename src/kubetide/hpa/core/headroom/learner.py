"""Learned headroom beside the plain rule of an autoscaler: `kubetide.io/hpa-headroom`.

| value           | once proven                                                          | else           |
|-----------------|----------------------------------------------------------------------|----------------|
| (none), off     | the plain rule                                                       | the plain rule |
| learned         | the larger of the metrics' proposal and the learned count            | the plain rule |
| learned-below   | the learned count, also where it is below what the metrics ask for   | the plain rule |

What comes out is a proposal like that of a metric: windows, policies of `behavior`, the minimum and the maximum still
hold. A failed metric is no evidence: nothing is learned from it, and nothing is lowered.

Demand is counted in replicas that are full: at 100 % of their requests for targets in percent, else at their target.
CPU stops at what pods can use, so that a metric of requests shows a rush sooner than CPU does.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HpaSpec
from kubetide.errors import InvalidInput
from kubetide.hpa.core.annotations import HeadroomMode
from kubetide.hpa.core.choice import Choice
from kubetide.hpa.core.evaluate import MetricResult
from kubetide.hpa.core.headroom.past_load import PastStep
from kubetide.hpa.core.pods import count_ready, ready_condition

# It computes with NumPy, which takes a tenth of a second to load: not before an autoscaler asks to learn.
if TYPE_CHECKING:
    from kubetide.hpa.core.headroom.advice import Advice, Headroom, Terms

DESCRIPTION: Final = "learned headroom"
LIVE: Final = "live"
_LONGEST_START: Final = timedelta(minutes=10)
_SAMPLE_AGE: Final = timedelta(seconds=15)
"""How old a sample usually is when it is seen (metrics-server's default resolution): forecasts reach further by it."""
_MOST_MISSED: Final = 20
"""Steps without a sample that are bridged with the next one; after more, or when the clock was set back by as many,
queues and holds begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCount:
    """The count that was learned for this moment, and on which demand."""

    mode: HeadroomMode
    demand: float
    advice: "Advice"
    step_seconds: int
    origin: str
    """What it was learned from."""


def with_headroom(choice: Choice, learned: LearnedCount | None) -> Choice:
    """Return the metrics' choice, moved by the learned count where that has proved itself."""
    if learned is None or not learned.advice.proven or not choice.active or choice.replicas < 1:
        return choice
    wanted = learned.advice.replicas
    if learned.mode is HeadroomMode.LEARNED or choice.error:
        wanted = max(wanted, choice.replicas)
    if wanted == choice.replicas:
        return choice
    message = (
        f"{DESCRIPTION} asks for {wanted} replicas where {choice.description} asks for {choice.replicas}: "
        f"a demand of {learned.advice.forecast.value:.4g} is forecast, now it is {learned.demand:.4g}"
    )
    return replace(choice, replicas=wanted, message=message, description=DESCRIPTION)


def demand_of(results: Sequence[MetricResult]) -> float | None:
    """Return how many full replicas the busiest metric keeps busy; None where a metric failed."""
    demands: list[float] = []
    for result in results:
        proposal = result.proposal
        if proposal is None or result.failure is not None or result.defect is not None:
            return None
        counted = proposal.current or 1
        if proposal.groups is not None:
            counted = len(proposal.used) + len(proposal.groups.missing)
        full = proposal.ratio if proposal.utilization is None else proposal.utilization / 100
        if not isfinite(full) or full < 0:
            return None
        demands.append(full * counted)
    return max(demands, default=None)


def start_time_of(pods: Sequence[Pod]) -> timedelta | None:
    """Return how long the pods took from their start to Ready, in the middle; None where none shows it."""
    times: list[timedelta] = []
    for pod in pods:
        condition, started = ready_condition(pod), pod.status.start_time
        if condition is None or condition.status != "True" or condition.last_transition_time is None or started is None:
            continue
        times.append(max(timedelta(0), condition.last_transition_time - started))
    return min(sorted(times)[len(times) // 2], _LONGEST_START) if times else None


class HeadroomLearner:
    """Learns about one autoscaler's target at every sync."""

    def __init__(self, mode: HeadroomMode, terms: "Terms", window: timedelta, *, replicas: int) -> None:
        self.mode, self.terms = mode, terms
        self._headroom = self._fresh(replicas)
        steps = max(1, int(window.total_seconds()) // terms.step_seconds)
        self._proposals: deque[int] = deque(maxlen=steps)
        self._at: int | None = None
        self._last: LearnedCount | None = None
        self._recalled: deque[int] = deque((replicas,), maxlen=terms.lead_steps + 1)
        self.origin = LIVE
        """What it learned from, in words."""

    def fits(self, mode: HeadroomMode, spec: HpaSpec, period: timedelta) -> bool:
        """Return whether it was made for these bounds, this mode and this period."""
        terms = self.terms
        bounds = terms.minimum, terms.maximum
        return bounds == bounds_of(spec) and mode is self.mode and terms.step_seconds == step_of(period)

    def learn(
        self, choice: Choice | None, results: Sequence[MetricResult], pods: Sequence[Pod], *, asked: int, now: datetime
    ) -> LearnedCount | None:
        """Take in what the plain rule saw and chose; return the learned count, None where nothing can be said."""
        demand = demand_of(results) if choice is not None and choice.active else None
        if choice is None or demand is None:
            return None
        step = int(now.timestamp()) // self.terms.step_seconds
        missed = 0 if self._at is None else step - self._at - 1
        if abs(missed) > _MOST_MISSED:
            self._begin_anew(asked)
            missed = 0
        elif missed < 0:
            return self._last
        ready = max(1, count_ready(pods) if pods else 0)
        for which in range(step - missed, step + 1):
            self._proposals.append(choice.replicas)
            advice = self._headroom.advise(
                which * self.terms.step_seconds, demand, ready=ready, asked=asked, plain=self._plain()
            )
        self._at = step
        self._last = LearnedCount(
            mode=self.mode,
            demand=demand,
            advice=advice,
            step_seconds=self.terms.step_seconds,
            origin=self.origin,
        )
        return self._last

    def recall(self, past: PastStep, tolerance: float) -> None:
        """Learn from a step of the past, the oldest first, as if the plain rule alone had scaled the target then.

        A pod serves once it has been wanted for as long as pods take to start.
        """
        missed = 0 if self._at is None else past.step - self._at - 1
        if missed > _MOST_MISSED:
            self._begin_anew(self._recalled[-1])
            missed = 0
        elif missed < 0:
            return
        for which in range(past.step - missed, past.step + 1):
            asked = self._recalled[-1]
            near = abs(past.wanted / asked - 1) <= tolerance
            self._proposals.append(asked if near else ceil(past.wanted))
            at, plain = which * self.terms.step_seconds, self._plain()
            self._headroom.advise(at, past.demand, ready=min(self._recalled), asked=asked, plain=plain)
            self._recalled.append(plain)
        self._at = past.step

    def saved(self) -> dict[str, Any]:
        """Return what was learned, for `restore`."""
        return {"mode": self.mode.value, **self._headroom.saved()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved; raise InvalidInput where it cannot be used, and change nothing then."""
        if saved.get("mode") != self.mode.value:
            raise InvalidInput("it was learned in another mode", field="mode")
        self._headroom.restore(saved)

    def _plain(self) -> int:
        """Return what the plain rule would have come to: its largest proposal in the window."""
        return min(max(*self._proposals, self.terms.minimum), self.terms.maximum)

    def _begin_anew(self, replicas: int) -> None:
        self._headroom = self._headroom.anew(replicas)
        self._proposals.clear()

    def _fresh(self, replicas: int) -> "Headroom":
        from kubetide.hpa.core.headroom.advice import Headroom

        return Headroom(self.terms, replicas=replicas, floor=self.mode is HeadroomMode.LEARNED)


def learner_for(
    mode: HeadroomMode,
    spec: HpaSpec,
    period: timedelta,
    window: timedelta,
    *,
    start: timedelta,
    replicas: int,
    saved: Mapping[str, Any],
) -> HeadroomLearner:
    """Return a learner for an autoscaler as it is now; `saved` holds with which start time it learned before.

    Start times are measured anew after every restart and never come out quite the same. One that is within a factor of
    two of what was learned with is taken to be that one.
    """
    from kubetide.hpa.core.headroom.advice import Terms

    minimum, maximum = bounds_of(spec)
    seconds, before = max(1, round((start + _SAMPLE_AGE).total_seconds())), saved.get("start")
    if isinstance(before, int) and seconds <= 2 * before and before <= 2 * seconds:
        seconds = before
    terms = Terms(
        step_seconds=step_of(period),
        start_seconds=seconds,
        minimum=minimum,
        maximum=maximum,
    )
    return HeadroomLearner(mode, terms, window, replicas=max(1, replicas))


def bounds_of(spec: HpaSpec) -> tuple[int, int]:
    """Return the least and the most that may be learned; to scale to zero is left to the metrics."""
    return max(1, spec.min_replicas or 1), spec.max_replicas


def step_of(period: timedelta) -> int:
    """Return the sync period in whole seconds."""
    return max(1, round(period.total_seconds()))
