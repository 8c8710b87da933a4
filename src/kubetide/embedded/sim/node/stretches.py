"""Many ticks of the kernel at once: what settling and counting tick by tick would give, to the last bit.

Between two changes of settings, processes and memory only the demands differ from tick to tick. All rates are then
functions of one tick's demands, worked out here for all ticks side by side, and counters are sums over the ticks. The
sums are taken in the order of time (`accumulate`), because another order would round differently.

Where CPUs are short, grants depend on the tree of groups: such a stretch is left to the kernel, tick by tick.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kubetide.embedded.sim.node.kernel import Kernel

Matrix = npt.NDArray[np.float64]
"""A row for each tick, a column for each process."""


def live_through(kernel: "Kernel", times: npt.NDArray[np.float64], demand: Matrix) -> Matrix | None:
    """Bring a kernel at rest through ticks that set these demands; return the CPU seconds used up to each.

    Nothing is changed, and None returned, where a machine has less CPU than is wanted at one of the ticks.
    """
    derived = kernel.derived
    granted = np.minimum(demand, derived.cap)
    # No tick wants more than the largest grants of all ticks together; mostly this is enough to know.
    most = np.bincount(derived.bins, weights=granted.max(axis=0), minlength=len(kernel.machines))
    if np.count_nonzero(most > derived.cpus):
        for wanted in granted:
            if np.count_nonzero(
                np.bincount(derived.bins, weights=wanted, minlength=len(kernel.machines)) > derived.cpus
            ):
                return None
    top = demand.shape[1]
    seconds = np.diff(times, prepend=kernel.now)[:, None]
    short = granted < demand
    stall = None
    if np.count_nonzero(short):
        stall = 1.0 - np.divide(granted, demand, out=np.ones_like(demand), where=short)
        kernel.pressed = True
    if kernel.pressed:
        _fade(kernel, stall, seconds)
    period_rate = derived.period_rate * (demand > 0)
    throttle_rate, throttle_time_rate = _throttling(kernel, demand, period_rate)
    used = _count(kernel.usage[:top], kernel.granted[:top], granted, seconds)
    for counter, column, rates in (
        (kernel.periods, kernel.period_rate, period_rate),
        (kernel.throttled, kernel.throttle_rate, throttle_rate),
        (kernel.throttled_seconds, kernel.throttle_time_rate, throttle_time_rate),
        (kernel.stalled_seconds, kernel.stall, stall),
    ):
        if rates is not None or column[:top].any():
            _count(counter[:top], column[:top], np.zeros_like(demand) if rates is None else rates, seconds)
    if kernel.memory_stall[:top].any():
        _count(kernel.memory_stalled_seconds[:top], kernel.memory_stall[:top], None, seconds)
    kernel.demand[:top] = demand[-1]
    kernel.now = float(times[-1])
    return used


def _count(
    counter: npt.NDArray[np.float64], rate: npt.NDArray[np.float64], rates: Matrix | None, seconds: Matrix
) -> Matrix:
    """Count at the present rate up to the first tick and at each tick's up to the next; leave both as they end."""
    growth = np.empty((len(seconds) + 1, len(counter)))
    growth[0] = counter
    growth[1] = rate
    growth[2:] = rate if rates is None else rates[:-1]
    growth[1:] *= seconds
    counted: Matrix = np.add.accumulate(growth, axis=0, out=growth)
    counter[:] = counted[-1]
    if rates is not None:
        rate[:] = rates[-1]
    return counted[1:]


def _fade(kernel: "Kernel", stall: Matrix | None, seconds: Matrix) -> None:
    top = len(kernel.derived.demand)
    rates = np.stack([kernel.stall[:top], kernel.memory_stall[:top]])[:, None, :]
    for index, span in enumerate(seconds[:, 0].tolist()):
        kernel.fade(rates, top, span)
        rates[0, 0] = 0.0 if stall is None else stall[index]


def _throttling(kernel: "Kernel", demand: Matrix, period_rate: Matrix) -> tuple[Matrix | None, Matrix | None]:
    """Return the rates that the kernel sets at each tick: zero where nobody comes near a quota, None if always."""
    near = (demand > kernel.derived.calm).any(axis=1)
    if not np.count_nonzero(near):
        return None, None
    rate, time_rate = np.zeros_like(demand), np.zeros_like(demand)
    rate[near], time_rate[near] = kernel.derived.throttling(demand[near], period_rate[near])
    return rate, time_rate
