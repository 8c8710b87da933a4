"""The adaptive estimator fed with recorded periods: the policies `adaptive` and `adaptive-one`.

The estimator learns by the hour. Periods are cut into hours; what is left over waits for the next period, and between
two hours nothing is decided.
"""

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.replay.core.plain import PlainModel
from kubetide.replay.core.policies import Decision, Fleet, Period
from kubetide.stats.buckets import Floats
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.sizes import Adaptive

_HOUR = 3600


class AdaptivePolicy:
    """Sizes that learn from what they would have cost."""

    def __init__(self, fleet: Fleet, *, limit_apart: bool) -> None:
        if _HOUR % fleet.interval_seconds:
            raise InvalidInput(
                f"{fleet.interval_seconds} s do not divide an hour, by which the policy learns", field="interval"
            )
        self._fleet = fleet
        self._per_hour = _HOUR // fleet.interval_seconds
        self._adaptive = Adaptive(fleet.size, limit_apart=limit_apart)
        self._plain = PlainModel(fleet.size, fleet.interval_seconds)
        self._waiting: dict[str, Floats] = {name: np.zeros((0, fleet.size)) for name in sorted(fleet.resources)}
        self._learned = False

    def observe(self, period: Period) -> None:
        """Learn every hour that is complete."""
        if period.cpu is not None:
            self._plain.add_cpu(period.cpu, period.starts)
        for name, samples in ((CPU, period.cpu), (MEMORY, period.memory)):
            if samples is not None:
                self._waiting[name] = np.concatenate([self._waiting[name], samples])
        while all(len(samples) >= self._per_hour for samples in self._waiting.values()):
            hour = {name: samples[: self._per_hour] for name, samples in self._waiting.items()}
            self._waiting = {name: samples[self._per_hour :] for name, samples in self._waiting.items()}
            self._adaptive.observe(cpu=hour.get(CPU), memory=hour.get(MEMORY))
            self._learned = True

    def decide(self) -> Decision:
        """Return the learned sizes."""
        if not self._learned:
            return Decision()
        self._learned = False
        sizes = self._adaptive.decide(self._plain.cpu_percentiles(PERCENTILES))
        has_memory = MEMORY in self._fleet.resources
        return Decision(
            cpu=sizes.cpu if CPU in self._fleet.resources else None,
            memory=sizes.memory if has_memory else None,
            memory_limit=sizes.memory_limit if has_memory else None,
        )
