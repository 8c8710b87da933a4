"""Headroom that is learned: how many replicas a workload should have for what may come while a pod starts.

A pod asked for now serves only after its start time. What is decided is therefore the count that the demand *then* is likely to
need, from a forecast and from how wrong the forecasts of this very workload have been (`kubetide.stats.forecast`). How much
risk to take and how long to hold a peak is not set but learned too: 35 candidates, every pair of

    price   how many replicas one replica's worth of late work is taken to cost when a level is chosen
    hold    how many steps a lower need must last before replicas are given up

are rehearsed all the time on the same demand, each with a small model of the workload (pods that start, a queue), and charged

    replicas + LATE_PRICE x late or lost work + a price for every change of direction

with slow forgetting. The one that would have been cheapest is followed. A candidate is only left for one that is clearly cheaper,
a rise is followed at once, and a fall only after its hold, down to the largest need seen meanwhile: calm by construction.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubetide.stats.forecast import Ensemble, Forecast
from kubetide.stats.forecast_errors import ForecastErrors

Floats = NDArray[np.float64]

PRICES: Final = (1.0, 4.0, 10.0, 20.0, 30.0)
HOLDS: Final = (4, 8, 16, 32, 64, 128, 400)
LATE_PRICE: Final = 20.0
"""Replica-steps that one replica-step of late work costs: the judge's price, and a usual order between a pod and a lost customer."""
REVERSAL_PRICE: Final = 8.0
"""Steps of the whole workload that a change of direction costs."""
LATE_SECONDS: Final = 1.0
LOST_SECONDS: Final = 60.0

_FORGET: Final = 1 - 1 / 5760  # costs are forgotten over a day of 15 s steps
_CLEARLY_CHEAPER: Final = 0.98
_FIRST: Final = 1 * len(PRICES) + 2  # followed until there is evidence: price 10, hold of two minutes


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
    price: float
    hold_steps: int
    cost: float
    backlog_seconds: float


class Plants:
    """The same demand met by many counts at once: one row for each candidate, the last one for the workload itself."""

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

    def correct(self, row: int, *, ready: int, asked: int) -> None:
        """Take over what was observed of a row where it went another way than the model."""
        if self.ready[row] == ready and self.asked[row] == asked:
            return
        self.ready[row], self.asked[row] = ready, asked
        self.starting[:, row] = 0.0
        self.starting[-1, row] = max(0, asked - ready)

    def catch_up(self, demand: float, forecast: float) -> Floats:
        """Return the counts that work off the backlog in the step in which pods asked for now serve, 0 where none waits."""
        waits = self.queue > self.ready * (LATE_SECONDS / 2)
        if not waits.any():
            return np.zeros_like(self.queue)
        queue, serving = self.queue, self.ready
        for pods in self.starting[:-1]:
            serving = serving + pods
            queue = np.maximum(queue + (demand - serving) * self._step, 0.0)
        needed = (queue + self._step * max(demand, forecast)) / (self._step + LATE_SECONDS)
        return np.where(waits, np.ceil(needed), 0.0)


class Headroom:
    """What is learned about one workload. Tell it every step with `advise`."""

    def __init__(self, terms: Terms, *, replicas: int) -> None:
        self._terms = terms
        self._ensemble = Ensemble(step_seconds=terms.step_seconds, lead_steps=terms.lead_steps)
        self._errors = ForecastErrors()
        self._pending: deque[tuple[float, bool]] = deque()
        self._recent: deque[float] = deque(maxlen=terms.lead_steps)
        rows = len(PRICES) * len(HOLDS) + 1
        self._prices = np.array(PRICES)
        self._price_of = np.arange(rows) % len(PRICES)
        self._holds = np.append(np.repeat(np.array(HOLDS, dtype=np.float64), len(PRICES)), 0.0)
        self._plants = Plants(rows, replicas, terms)
        self._next: Floats = self._plants.asked.copy()
        self._direction: Floats = np.zeros(rows)
        self._quiet: Floats = np.zeros(rows)
        self._peak: Floats = np.zeros(rows)
        self._size = float(replicas)
        self.costs: Floats = np.zeros(rows - 1)
        self.followed = _FIRST

    def advise(self, at_seconds: int, demand: float, *, ready: int, asked: int) -> Advice:
        """Return the count for the steps to come, from the demand (in replicas) of the step that began at `at_seconds`."""
        self._rehearse(demand)
        self._plants.correct(len(self.costs), ready=ready, asked=asked)
        self._learn(demand)
        forecast = self._ensemble.update(at_seconds, demand)
        self._pending.append((forecast.value, self._errors.stirred))
        slack = LATE_SECONDS / self._terms.step_seconds
        levels = self._errors.levels(forecast.value, self._prices, slack=slack)
        self._follow()
        level = int(levels[self.followed % len(PRICES)])
        self._hold(levels, self._plants.catch_up(demand, forecast.value))
        return Advice(
            replicas=int(self._next[-1]),
            forecast=forecast,
            typical_error=self._errors.typical,
            level=level,
            price=PRICES[self.followed % len(PRICES)],
            hold_steps=HOLDS[self.followed // len(PRICES)],
            cost=float(self.costs[self.followed]),
            backlog_seconds=float(self._plants.queue[-1] / max(1.0, self._plants.ready[-1])),
        )

    def _rehearse(self, demand: float) -> None:
        """Let every candidate meet the demand and charge it."""
        self._size += (1 - _FORGET) * (max(1.0, demand) - self._size)
        turned = np.sign(self._plants.scale(self._next))
        late, lost = self._plants.serve(demand)
        charge = self._plants.asked + LATE_PRICE * (lost + demand * late)
        if turned.any():
            charge = charge + (REVERSAL_PRICE * self._size) * (turned * self._direction < 0)
            self._direction = np.where(turned != 0, turned, self._direction)
        self.costs = self.costs * _FORGET + charge[:-1]

    def _learn(self, demand: float) -> None:
        """Compare the forecast whose horizon has just ended with what came."""
        self._recent.append(demand)
        if len(self._pending) >= self._terms.lead_steps:
            forecast, stirred = self._pending.popleft()
            self._errors.learn(forecast, max(self._recent), stirred=stirred)

    def _follow(self) -> None:
        best = int(self.costs.argmin())
        if self.costs[best] < self.costs[self.followed] * _CLEARLY_CHEAPER:
            self.followed = best
        self._price_of[-1] = self.followed % len(PRICES)
        self._holds[-1] = HOLDS[self.followed // len(PRICES)]

    def _hold(self, levels: Floats, backlog: Floats) -> None:
        """Rise at once; fall after the hold, to the largest need seen in it."""
        needs = np.clip(np.maximum(levels[self._price_of], backlog), self._terms.minimum, self._terms.maximum)
        asked = self._plants.asked
        below = needs < asked
        self._peak = np.where(below, np.maximum(self._peak, needs), 0.0)
        self._quiet = np.where(below, self._quiet + 1, 0.0)
        falls = below & (self._quiet >= self._holds)
        self._next = np.where(falls, self._peak, np.where(below, asked, needs))
        self._peak[falls] = self._quiet[falls] = 0.0

    def saved(self) -> dict[str, Any]:
        """Return what was learned, small enough to live in an annotation."""
        return {
            "forecasters": self._ensemble.saved(),
            "errors": self._errors.saved(),
            "costs": [round(float(cost), 1) for cost in self.costs],
            "followed": self.followed,
            "size": round(self._size, 3),
        }
