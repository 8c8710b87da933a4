"""When a recommended size comes into force: always, when it is off by enough, outside its bounds, not too often.

All containers of a workload change together, to the largest size that any of them was given: pods of one template
have one size.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubetide.replay.core.policies import Decision
from kubetide.replay.core.spec import Update
from kubetide.stats.buckets import Floats, Ints

Mask = npt.NDArray[np.bool_]
MOVED = 0.01
"""A request that moves by more than this has changed."""


@dataclass(slots=True)
class InForce:
    """The sizes of containers: cores and bytes, NaN where none is known."""

    cpu: Floats
    memory: Floats
    memory_limit: Floats
    since: Ints
    """Seconds at which each was last changed."""

    @classmethod
    def none(cls, size: int) -> "InForce":
        """Return that nothing is known yet."""
        cpu, memory, limit = (np.full(size, np.nan) for _ in range(3))
        return cls(cpu, memory, limit, np.full(size, np.iinfo(np.int64).min // 2))


class Updater:
    """Puts decisions into force by a rule."""

    def __init__(self, rule: Update, cooldown_seconds: int, workloads: Ints | None) -> None:
        self._rule = rule
        self._cooldown = cooldown_seconds
        self._workloads = workloads

    def apply(self, decision: Decision, now: InForce, at_seconds: int) -> Mask:
        """Put a decision into force where the rule allows it; return which requests moved by more than 1 %."""
        wanted = [
            self._together(_or_kept(new, old))
            for new, old in (
                (decision.cpu, now.cpu),
                (decision.memory, now.memory),
                (decision.memory_limit, np.full(now.cpu.size, np.nan)),
            )
        ]
        due = self._due(decision, now, wanted[0], wanted[1])
        unset = np.isnan(now.cpu) & np.isnan(now.memory)
        allowed = unset | (due & (at_seconds - now.since >= self._cooldown))
        moved = allowed & ~unset & (_off(now.cpu, wanted[0], MOVED) | _off(now.memory, wanted[1], MOVED))
        for mine, new in ((now.cpu, wanted[0]), (now.memory, wanted[1]), (now.memory_limit, wanted[2])):
            np.copyto(mine, new, where=allowed)
        now.since[moved | (unset & ~np.isnan(now.cpu + now.memory))] = at_seconds
        return moved

    def _due(self, decision: Decision, now: InForce, cpu: Floats, memory: Floats) -> Mask:
        if self._rule.when == "always":
            return np.ones(cpu.size, dtype=np.bool_)
        due = _off(now.cpu, cpu, self._rule.change) | _off(now.memory, memory, self._rule.change)
        for mine, bounds in ((now.cpu, decision.cpu_bounds), (now.memory, decision.memory_bounds)):
            if bounds is not None:
                due |= (mine < bounds[0]) | (mine > bounds[1])
        return due if self._workloads is None else self._any_of_workload(due)

    def _any_of_workload(self, due: Mask) -> Mask:
        assert self._workloads is not None
        return np.bincount(self._workloads, weights=due)[self._workloads] > 0

    def _together(self, sizes: Floats) -> Floats:
        if self._workloads is None:
            return sizes
        largest = np.full(int(self._workloads.max(initial=-1)) + 1, -np.inf)
        np.fmax.at(largest, self._workloads, np.where(np.isnan(sizes), -np.inf, sizes))
        found = largest[self._workloads]
        return np.where(np.isfinite(found), found, np.nan)


def _or_kept(new: Floats | None, old: Floats) -> Floats:
    return old.copy() if new is None else np.where(np.isnan(new), old, new)


def _off(old: Floats, new: Floats, share: float) -> Mask:
    with np.errstate(divide="ignore", invalid="ignore"):
        off: Mask = np.abs(new / old - 1.0) > share
    return off
