"""What arrives at workloads, and how fast their pods answer: the arithmetic of `profile.latency`, on whole columns."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.load.profile import WORST_LATENCY, WorkloadKey
from kubetide.embedded.sim.node.columns import Column
from kubetide.embedded.sim.node.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Served:
    """What arrives at one workload, and what each of its ready pods makes of its part."""

    rate: float
    """Requests per second, whether or not anybody takes them."""
    rates: tuple[float, ...] = ()
    latencies: tuple[float, ...] = ()

    @property
    def pods(self) -> int:
        """How many are ready."""
        return len(self.rates)

    @property
    def latency(self) -> float:
        """The mean over its pods; 0 without any."""
        return sum(self.latencies) / len(self.latencies) if self.latencies else 0.0

    def slower_than(self, seconds: float) -> float:
        """Return the requests per second to pods that take so long, or longer."""
        if not self.latencies or max(self.latencies) < seconds:
            return 0.0
        return sum(rate for rate, latency in zip(self.rates, self.latencies, strict=True) if latency >= seconds)


NOTHING = Served(0.0)


@dataclass(frozen=True, slots=True)
class ReadyTask:
    """A container that takes requests."""

    row: int
    weight: float
    service_seconds: float


class Serving:
    """The containers that take requests, side by side, workload after workload."""

    def __init__(self, ready: Mapping[WorkloadKey, list[ReadyTask]]) -> None:
        self._spans: dict[WorkloadKey, tuple[int, int]] = {}
        tasks: list[ReadyTask] = []
        totals: list[float] = []
        for workload, some in ready.items():
            self._spans[workload] = len(tasks), len(tasks) + len(some)
            tasks += some
            totals += [sum(task.weight for task in some)] * len(some)
        self._rows: npt.NDArray[np.intp] = np.array([task.row for task in tasks], dtype=np.intp)
        self._weights: Column = np.array([task.weight for task in tasks], dtype=np.float64)
        self._totals: Column = np.array(totals, dtype=np.float64)
        self._seconds: Column = np.array([task.service_seconds for task in tasks], dtype=np.float64)

    def at(self, levels: Mapping[WorkloadKey, float], kernel: Kernel) -> dict[WorkloadKey, Served]:
        """Return what is made of these loads."""
        loads = np.zeros(len(self._rows))
        for workload, (first, end) in self._spans.items():
            loads[first:end] = levels.get(workload, 0.0)
        rates = tuple((loads * self._weights / self._totals).tolist())
        latencies = tuple(self._latencies(kernel).tolist())
        found = {}
        for workload, level in levels.items():
            first, end = self._spans.get(workload, (0, 0))
            found[workload] = Served(level, rates[first:end], latencies[first:end])
        return found

    def _latencies(self, kernel: Kernel) -> Column:
        """A queue with one server: service time over what is left of the CPU that each may have."""
        demand, granted = kernel.demand[self._rows], kernel.granted[self._rows]
        room = np.where(granted < demand - 1e-9, granted, kernel.cap[self._rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            utilisation = demand / room
            found = np.minimum(WORST_LATENCY, self._seconds / (1 - utilisation))
        return np.where((room > 0) & (utilisation < 1), found, WORST_LATENCY)
