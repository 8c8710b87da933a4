"""Headroom that is learned: how many replicas a workload should have for what may come while a pod starts.

A pod asked for now serves only after its start time. What is decided is therefore the count that the demand *then* is
likely to need, from forecasts and from how wrong the forecasts of this very workload have been (`kubetide.stats`). How
much risk to take and how long to hold a peak is not set but learned too: 182 candidates, every pair of

    level   the cheapest by the histogram of errors, at one of six prices of late work, or one of twenty bands: a centre
            (one of three means, or the forecast) plus some widths of its usual error; none is below the demand of now
    hold    how many steps a lower need must last before replicas are given up

are rehearsed all the time on the same demand, each with a small model of the workload (pods that start, a queue), and
charged, with slow forgetting,

    replicas + LATE_PRICE x late or lost work + REVERSAL_PRICE steps of all this for every change of direction

The candidate that would have been cheapest is followed, and left only for one that is clearly cheaper; bands are not
followed in the first hour, when so many candidates would be told apart by noise. A rise is followed at once; a fall
only after its hold, down to the largest need seen meanwhile, and only if it is worth it: calm by construction.

Where a plain rule is given too, it is rehearsed and charged like a candidate. Advice is `proven` once there was an hour
of evidence in which following it would have been cheaper than the plain rule, and until that is no longer so.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubetide.errors import InvalidInput
from kubetide.stats.forecast import Ensemble, Forecast, finite_numbers
from kubetide.stats.forecast_bands import CENTRES, WIDTHS, Bands
from kubetide.stats.forecast_errors import ForecastErrors

Floats = NDArray[np.float64]

PRICES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
HOLDS: Final = (4, 8, 16, 32, 64, 128, 400)
RULES: Final = (
    *(f"errors, late work at {price:g}" for price in PRICES),
    *(f"{centre} + {width:g} errors" for centre in CENTRES for width in WIDTHS),
)
"""What a level may follow from; with each of the holds it is a candidate."""
LATE_PRICE: Final = 40.0
"""Replica-steps that one replica-step of late or lost work costs."""
REVERSAL_PRICE: Final = 12.0
"""Steps of the workload's usual cost that a change of direction costs."""
WORTHWHILE: Final = 0.1
"""The share of the replicas that a fall must save: the HPA's own tolerance."""
LATE_SECONDS: Final = 1.0
"""A request that waits longer is late: more than a person forgives, less than most clients' time-outs."""
LOST_SECONDS: Final = 60.0
"""A request that would wait longer has been given up."""

_MEMORY: Final = 1 / 5760  # costs are forgotten over a day of 15 s steps
_CLEARLY: Final = 0.02  # another candidate must have been cheaper by this share of the cost ...
_CLEARLY_STEPS: Final = 20.0  # ... and by this many steps of the usual cost: in the first hour costs are mostly noise
_PROOF_STEPS: Final = 240
_FIRST: Final = 3  # followed until there is evidence: price 8, a hold of one minute
_BACKLOG_SECONDS: Final = 0.1  # a shorter wait is no backlog
_RISING: Final = 1.1  # who is behind asks for a tenth more: less late work for more replicas, at equal cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is fixed for a workload: its step, the start time of its pods and its bounds."""

    step_seconds: int = 15
    start_seconds: int = 30
    minimum: int = 1
    maximum: int = 200

    @property
    def lead_steps(self) -> int:
        """Return the steps until a pod asked for now serves."""
        return max(1, -(-self.start_seconds // self.step_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A count, and how it came about."""

    replicas: int
    forecast: Forecast
    typical_error: float
    level: int
    rule: str
    """What the level follows from."""
    hold_steps: int
    backlog_seconds: float
    cost: float
    """What following the candidate would have cost of late, in replicas."""
    plain_cost: float | None
    """The same of the plain rule, if it is known."""
    proven: bool


class Plants:
    """The same demand met by many counts at once, a row for each."""

    def __init__(self, rows: int, replicas: int, terms: Terms) -> None:
        self._step = float(terms.step_seconds)
        self.asked: Floats = np.full(rows, float(replicas))
        self.ready: Floats = self.asked.copy()
        self.starting: Floats = np.zeros((terms.lead_steps, rows))
        self.queue: Floats = np.zeros(rows)

    def scale(self, replicas: Floats) -> Floats:
        """Ask for other counts and return the changes: pods that still start are given up first."""
        change = replicas - self.asked
        if not change.any():
            return change
        self.starting[-1] += np.maximum(change, 0.0)
        surplus = np.maximum(-change, 0.0)
        for pods in self.starting[::-1]:
            given_up = np.minimum(surplus, pods)
            pods -= given_up
            surplus = surplus - given_up
        self.ready = self.ready - surplus
        self.asked = replicas.copy()
        return change

    def serve(self, demand: float) -> tuple[NDArray[np.bool_], Floats]:
        """Let a step pass; return which rows were late and how much work (in replica-steps) each lost."""
        self.ready = self.ready + self.starting[0]
        self.starting[:-1] = self.starting[1:]
        self.starting[-1] = 0.0
        left = np.maximum(self.queue + (demand - self.ready) * self._step, 0.0)
        self.queue = np.minimum(left, self.ready * LOST_SECONDS)
        return self.queue > self.ready * LATE_SECONDS, (left - self.queue) / self._step

    def observe_ready(self, row: int, ready: int) -> None:
        """Take over how many pods of a row really are ready: late ones are expected next, early ones are there."""
        late = float(self.ready[row]) - ready
        self.ready[row] = ready
        if late > 0:
            self.starting[0, row] += late
        for pods in self.starting:
            if late < 0:
                early = min(-late, float(pods[row]))
                pods[row] -= early
                late += early

    def catch_up(self, demand: float, forecast: float) -> Floats:
        """Return the counts that work off the backlog in the first step of pods asked for now; 0 where none waits."""
        waits = self.queue > self.ready * _BACKLOG_SECONDS
        if not waits.any():
            return np.zeros_like(self.queue)
        queue, serving = self.queue, self.ready
        for pods in self.starting[:-1]:
            serving = serving + pods
            queue = np.maximum(queue + (demand - serving) * self._step, 0.0)
        needed = (queue + self._step * _RISING * max(demand, forecast)) / (self._step + LATE_SECONDS)
        return np.where(waits, np.ceil(needed), 0.0)


class Headroom:
    """What is learned about one workload. Give it every step with `advise`.

    Rows: the candidates, the plain rule, the workload itself. With `floor` no candidate goes below the plain rule.
    """

    def __init__(self, terms: Terms, *, replicas: int, floor: bool = False) -> None:
        self._terms = terms
        self._ensemble = Ensemble(step_seconds=terms.step_seconds, lead_steps=terms.lead_steps)
        self._errors = ForecastErrors()
        self._bands = Bands(lead_steps=terms.lead_steps)
        self._pending: deque[tuple[float, int]] = deque()
        self._recent: deque[float] = deque(maxlen=terms.lead_steps)
        self._floor = floor
        rows = len(RULES) * len(HOLDS) + 2
        self._prices = np.array(PRICES)
        self._rule_of = np.arange(rows) % len(RULES)
        self._holds = np.append(np.repeat(np.array(HOLDS, dtype=np.float64), len(RULES)), (0.0, 0.0))
        self._plants = Plants(rows, replicas, terms)
        # Whoever has more than the maximum, or less than the minimum, is never advised to stay there.
        self._next: Floats = np.minimum(np.maximum(self._plants.asked, terms.minimum), terms.maximum)
        self._direction: Floats = np.zeros(rows)
        self._quiet: Floats = np.zeros(rows)
        self._peak: Floats = np.zeros(rows)
        self._rate = float(replicas)
        self._steps = 0
        self._weight = 0.0
        self.costs: Floats = np.zeros(rows - 1)
        self.followed = _FIRST
        self._proven = False

    def advise(self, at_seconds: int, demand: float, *, ready: int, asked: int, plain: int | None = None) -> Advice:
        """Return the count for the next steps, from the demand (in replicas) of the step begun at `at_seconds`.

        `plain` is what the plain rule asks for now, where there is one to be measured against.
        """
        self._rehearse(demand, asked)
        self._plants.observe_ready(-1, ready)
        self._learn(demand)
        forecast = self._ensemble.update(at_seconds, demand)
        levels = self._levels(demand, forecast.value)
        self._follow()
        level = int(levels[self.followed % len(RULES)])
        self._hold(levels, self._plants.catch_up(demand, forecast.value), plain)
        self._prove(plain)
        return Advice(
            replicas=int(self._next[-1]),
            forecast=forecast,
            typical_error=self._errors.typical,
            level=level,
            rule=RULES[self.followed % len(RULES)],
            hold_steps=HOLDS[self.followed // len(RULES)],
            backlog_seconds=float(self._plants.queue[-1] / max(1.0, self._plants.ready[-1])),
            cost=float(self.costs[self.followed]) / self._weight,
            plain_cost=None if plain is None else float(self.costs[-1]) / self._weight,
            proven=self._proven,
        )

    def _rehearse(self, demand: float, asked: int) -> None:
        """Let every candidate meet the demand and charge it; the workload itself has the count that was asked for."""
        counts = self._next.copy()
        counts[-1] = asked
        turned = np.sign(self._plants.scale(counts))
        late, lost = self._plants.serve(demand)
        charge = self._plants.asked + LATE_PRICE * (lost + demand * late)
        self._steps += 1
        self._rate += max(_MEMORY, 1 / (self._steps + 20)) * (float(charge[-1]) - self._rate)
        if turned.any():
            charge += (REVERSAL_PRICE * self._rate) * (turned * self._direction < 0)
            self._direction = np.where(turned != 0, turned, self._direction)
        self._weight = self._weight * (1 - _MEMORY) + 1
        self.costs *= 1 - _MEMORY
        self.costs += charge[:-1]

    def _learn(self, demand: float) -> None:
        """Compare the forecast whose horizon has just ended with what came."""
        self._recent.append(demand)
        if len(self._pending) >= self._terms.lead_steps:
            forecast, state = self._pending.popleft()
            self._errors.learn(forecast, max(self._recent), state=state)

    def _levels(self, demand: float, forecast: float) -> Floats:
        """Return the level of every rule, for the demand of now at least.

        A level carries a little more than itself for a step without anything being late, but not step after step.
        """
        state = self._errors.state(demand)
        self._pending.append((forecast, state))
        slack = LATE_SECONDS / self._terms.step_seconds
        levels: Floats = np.append(
            self._errors.levels(forecast, self._prices, slack=slack, state=state),
            np.ceil(self._bands.update(demand, forecast) / (1 + slack) - 1e-9),
        )
        return np.asarray(np.maximum(levels, np.ceil(demand - 1e-9)), dtype=np.float64)

    def _follow(self) -> None:
        costs = self.costs[:-1]
        if self._steps < _PROOF_STEPS:
            costs = np.where(self._rule_of[:-2] < len(PRICES), costs, np.inf)
        best = int(costs.argmin())
        if self.costs[best] < self.costs[self.followed] * (1 - _CLEARLY) - _CLEARLY_STEPS * self._rate:
            self.followed = best
        self._rule_of[-1] = self.followed % len(RULES)
        self._holds[-1] = HOLDS[self.followed // len(RULES)]

    def _prove(self, plain: int | None) -> None:
        """Trust what is followed while it has been cheaper than the plain rule for long enough."""
        if plain is None or self._steps < _PROOF_STEPS:
            self._proven = False
        elif self._proven:
            self._proven = bool(self.costs[self.followed] <= self.costs[-1])
        else:
            self._proven = bool(self.costs[self.followed] < self.costs[-1] * (1 - _CLEARLY))

    def _hold(self, levels: Floats, backlog: Floats, plain: int | None) -> None:
        """Rise at once; fall after the hold, to the largest need seen in it.

        Advice follows itself and not the workload: where a window keeps a fall from being made, it is advised on.
        """
        needs = np.maximum(levels[self._rule_of], backlog)
        if plain is not None and self._floor:
            needs = np.maximum(needs, float(plain))
        needs = np.minimum(np.maximum(needs, self._terms.minimum), self._terms.maximum)
        held = self._next
        below = needs < held
        self._next = np.where(below, held, needs)
        self._peak = np.maximum(self._peak, needs) * below
        self._quiet = (self._quiet + 1) * below
        due = below & (self._quiet >= self._holds)
        if due.any():
            falls = due & (held - self._peak >= WORTHWHILE * held)
            self._next[falls] = self._peak[falls]
            self._peak[due] = self._quiet[due] = 0.0
        if plain is not None:
            self._next[-2] = plain

    def anew(self, replicas: int) -> "Headroom":
        """Return one that knows what was learned, seasons too, and has no pods that start and nothing that waits."""
        fresh = Headroom(self._terms, replicas=replicas, floor=self._floor)
        fresh.restore(self.saved())
        fresh._ensemble.keep_seasons(self._ensemble)
        return fresh

    def saved(self) -> dict[str, Any]:
        """Return what was learned, small enough to live in an annotation; seasons and backlogs are not part of it."""
        return {
            "start": self._terms.start_seconds,
            "step": self._terms.step_seconds,
            "forecasters": self._ensemble.saved(),
            "errors": self._errors.saved(),
            "bands": self._bands.saved(),
            "costs": [round(float(cost) / max(1.0, self._weight), 2) for cost in self.costs],
            "rate": round(self._rate, 3),
            "steps": self._steps,
            "weight": round(self._weight, 1),
            "followed": self.followed,
            "proven": self._proven,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved; raise InvalidInput where it cannot be used, and change nothing then."""
        terms = self._terms
        if (saved.get("start"), saved.get("step")) != (terms.start_seconds, terms.step_seconds):
            raise InvalidInput("it was learned with another start time or sync period", field="start")
        costs, followed = finite_numbers(saved, "costs", len(self.costs)), saved.get("followed")
        rate, steps, weight = (finite_numbers({name: [saved.get(name)]}, name, 1)[0] for name in _SCALARS)
        if not isinstance(followed, int) or not 0 <= followed < len(RULES) * len(HOLDS):
            raise InvalidInput(f"{followed!r} is not a candidate", field="followed")
        ensemble = Ensemble(step_seconds=terms.step_seconds, lead_steps=terms.lead_steps)
        errors, bands = ForecastErrors(), Bands(lead_steps=terms.lead_steps)
        ensemble.restore(_part(saved, "forecasters"))
        errors.restore(_part(saved, "errors"))
        bands.restore(_part(saved, "bands"))
        self._ensemble, self._errors, self._bands = ensemble, errors, bands
        self._weight, self._rate, self._steps = weight, rate, int(steps)
        self.costs = np.array(costs) * max(1.0, weight)
        self.followed, self._proven = followed, bool(saved.get("proven"))


_SCALARS: Final = ("rate", "steps", "weight")


def _part(saved: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = saved.get(name)
    if not isinstance(part, Mapping):
        raise InvalidInput("it is missing", field=name)
    return part
