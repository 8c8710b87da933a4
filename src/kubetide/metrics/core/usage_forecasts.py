"""How much CPU some pods will use before a lead time is over: the forecasts behind learned headroom, for anybody.

Whoever asks for a forecast begins it: the usage of the pods that a selector chooses is followed from then on, a value
each step, by the ensemble of `stats.forecast` (last value, trend, mean, and the hour, day and week that it has seen).
It answers once it has seen `WARM_UP` steps, and is forgotten when nobody has asked for an hour. A step at which no node
reported is left out; after a longer gap it begins anew, for a series with holes teaches what never was.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

# It computes with NumPy, which a server that nobody asks for forecasts does without.
if TYPE_CHECKING:
    from kubetide.stats.forecast import Ensemble

STEP: Final = timedelta(seconds=15)
WARM_UP: Final = 20
MOST: Final = 500
KEPT: Final = timedelta(hours=1)
LONGEST_GAP: Final = 20
SHORTEST_LEAD, DEFAULT_LEAD, LONGEST_LEAD = timedelta(minutes=1), timedelta(minutes=5), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ForecastKey:
    """Which pods, and how far ahead."""

    namespace: str
    selector: str
    lead: timedelta = DEFAULT_LEAD


@dataclass(slots=True)
class _Followed:
    ensemble: "Ensemble"
    asked: float
    step: int = -1
    steps: int = 0
    value: float = 0.0


class UsageForecasts:
    """Forecasts that somebody asks for. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._followed: dict[ForecastKey, _Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def ask(self, key: ForecastKey, *, now: float) -> float | None:
        """Return the largest use in cores that is expected within the lead; None while too little is known."""
        found = self._followed.get(key)
        if found is None:
            if len(self._followed) < MOST:
                self._followed[key] = _Followed(_ensemble(key.lead), now)
            return None
        found.asked = now
        return found.value if found.steps >= WARM_UP and _step(now) - found.step <= LONGEST_GAP else None

    def wanted(self, *, now: float) -> list[ForecastKey]:
        """Return what is followed; what nobody has asked for lately is no more."""
        kept = KEPT.total_seconds()
        self._followed = {key: one for key, one in self._followed.items() if now - one.asked < kept}
        return list(self._followed)

    def learn(self, key: ForecastKey, cores: float, *, now: float) -> None:
        """Take the usage of one step; another value in the same step changes nothing."""
        followed = self._followed.get(key)
        step = _step(now)
        if followed is None or step <= followed.step:
            return
        if followed.step >= 0 and step - followed.step > LONGEST_GAP:
            followed.ensemble, followed.steps = _ensemble(key.lead), 0
        followed.step, followed.steps = step, followed.steps + 1
        followed.value = followed.ensemble.update(step * int(STEP.total_seconds()), cores).value


def _step(now: float) -> int:
    return int(now // STEP.total_seconds())


def _ensemble(lead: timedelta) -> "Ensemble":
    from kubetide.stats.forecast import Ensemble

    return Ensemble(step_seconds=int(STEP.total_seconds()), lead_steps=max(1, round(lead / STEP)))
