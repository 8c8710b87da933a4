"""What follows from the settings of all groups and the set of processes: worked out once, until one of them changes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.node.columns import Column
from kubetide.embedded.sim.node.memory import MemoryView

if TYPE_CHECKING:
    from kubetide.embedded.sim.node.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from the settings and the set of processes, until one of them changes."""

    bins: npt.NDArray[np.intp]
    """The machine of each row. Rows that are not in use count for the first: they want and hold nothing."""
    quota: Column
    reach: Column
    """Quota and burst: what the busiest period may use."""
    period_rate: Column
    """Periods per second where there is a quota, else 0."""
    calm: Column
    """Up to this demand nothing is throttled."""
    limit: Column
    room: Column
    """Up to this much memory nothing stalls."""
    cpus: Column
    bound: npt.NDArray[np.bool_]
    capacity: Column
    """What processes on each machine may hold in memory."""
    demand: Column
    """This and what follows are the columns themselves, as far as they are in use."""
    cap: Column
    granted: Column
    memory: MemoryView

    @classmethod
    def of(cls, kernel: "Kernel", top: int) -> "Derived":
        quota = np.maximum(kernel.quota[:top], _LEAST)
        limit = np.maximum(kernel.limit[:top], _LEAST)
        reach = quota + kernel.burst[:top]
        period_rate = np.zeros(top)
        np.divide(1.0, kernel.period[:top], out=period_rate, where=np.isfinite(quota) & (kernel.period[:top] > 0))
        bins = np.maximum(kernel.node[:top], 0)
        return cls(
            bins=bins,
            quota=quota,
            reach=reach,
            period_rate=period_rate,
            calm=np.minimum(0.8 * reach, quota),
            limit=limit,
            room=0.95 * limit,
            cpus=np.array([len(machine.cpus) for machine in kernel.machines], dtype=np.float64),
            bound=np.array([machine.bound for machine in kernel.machines], dtype=np.bool_),
            capacity=np.array([machine.memory_bytes - machine.kernel_memory for machine in kernel.machines]),
            demand=kernel.demand[:top],
            cap=kernel.cap[:top],
            granted=kernel.granted[:top],
            memory=MemoryView(
                node=kernel.node[:top], bins=bins, anon=kernel.anon[:top], file=kernel.file[:top],
                goal=kernel.cache_goal[:top], limit=kernel.limit[:top], adjust=kernel.oom_adjust[:top],
            ),
        )  # fmt: skip

    def throttling(self, demand: Column, period_rate: Column) -> tuple[Column, Column]:
        """Return throttled periods and throttled seconds per second, at one tick or, a row each, at several."""
        share = demand / self.reach
        share -= 0.8
        share /= 0.4
        steady = demand / self.quota
        steady -= 1.0
        steady /= 0.2
        np.maximum(share, steady, out=share)
        np.maximum(share, 0.0, out=share)
        np.minimum(share, 1.0, out=share)
        kept = np.divide(self.quota, demand, out=np.ones_like(demand), where=share > 0)
        return period_rate * share, share * np.maximum(1.0 - kept, 0.05)


_LEAST = 1e-12
"""Stands for a quota or limit of nothing, by which nothing can be divided."""
