"""The adaptive estimator fed with recorded periods: the policies `adaptive` and `adaptive-one`.

The estimator learns by the hour. Periods are cut into hours; what is left over waits for the next period, and between
two hours nothing is decided.

Nothing is known of a container that was never seen, but whoever asks for its size wants to start it. It gets what its
neighbours have: their mean request, and the largest of their limits; where the limit is the request, what nine in ten
of them do not exceed. An estimator's floor of a megabyte would be an OOM kill.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kubetide.errors import InvalidInput
from kubetide.replay.core.plain import PlainModel
from kubetide.replay.core.policies import Decision, Fleet, Period
from kubetide.stats.buckets import Floats
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.sizes import Adaptive

_HOUR = 3600
_NINE_IN_TEN = 0.9
Mask = npt.NDArray[np.bool_]


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
        self._seen: dict[str, Mask] = {name: np.zeros(fleet.size, dtype=np.bool_) for name in self._waiting}
        self._learned = False

    def observe(self, period: Period) -> None:
        """Learn every hour that is complete."""
        if period.cpu is not None:
            self._plain.add_cpu(period.cpu, period.starts)
        for name, samples in ((CPU, period.cpu), (MEMORY, period.memory)):
            if samples is not None:
                self._waiting[name] = np.concatenate([self._waiting[name], samples])
                if not self._seen[name].all():
                    self._seen[name] |= np.isfinite(samples).any(axis=0)
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
        if MEMORY not in self._fleet.resources:
            return Decision(cpu=self._known_or(CPU, sizes.cpu, _mean))
        limit = sizes.memory_limit
        return Decision(
            cpu=self._known_or(CPU, sizes.cpu, _mean) if CPU in self._fleet.resources else None,
            memory=self._known_or(MEMORY, sizes.memory, _high if limit is None else _mean),
            memory_limit=None if limit is None else self._known_or(MEMORY, limit, _largest),
        )

    def _known_or(self, resource: str, sizes: Floats, usual: Callable[[Floats], float]) -> Floats:
        """Return sizes, with what is usual in the fleet for containers that were never seen."""
        seen = self._seen[resource]
        return sizes if seen.all() or not seen.any() else np.where(seen, sizes, usual(sizes[seen]))


def _mean(sizes: Floats) -> float:
    # Added up in order: the last bit must not depend on how a CPU splits a sum.
    return float(np.add.accumulate(sizes)[-1]) / sizes.size


def _high(sizes: Floats) -> float:
    return float(np.sort(sizes)[math.ceil(_NINE_IN_TEN * sizes.size) - 1])


def _largest(sizes: Floats) -> float:
    return float(sizes.max())
