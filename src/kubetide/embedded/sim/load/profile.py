"""How a simulated workload behaves: what one request costs, what memory it holds, when it is ready or done.

cpu demand   = start_cpu while starting, then idle + rate × cpu_per_request  (a batch container: its threads)
memory       = base + rate × memory_per_request + leak × hours since the container started
disk         = disk + rate × disk_per_request bytes per second, while ready or at work
latency      = service time / (1 − utilisation), a queue with one server; at most `WORST_LATENCY`
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubetide.api.values.quantity import quantity_float
from kubetide.durations import parse_duration
from kubetide.embedded.sim.load.curves import Constant, Curve
from kubetide.errors import InvalidInput

MIB = float(2**20)
WORST_LATENCY = 30.0

WorkloadKey = tuple[str, str]
"""Namespace and name of the topmost owner."""
ANNOTATION = "sim.kubetide.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of every container of one workload. CPU in cores, memory in bytes, times in seconds."""

    curve: Curve | None = None
    """Requests per second for the whole workload, shared by its ready pods."""
    cpu_per_request: float = 0.01
    cpu_idle: float = 0.005
    cpu_steady: float | None = None
    """A fixed demand per pod, beside any load."""
    start_cpu: float = 0.1
    start_seconds: float = 5.0
    memory_base: float = 64 * MIB
    memory_per_request: float = 0.0
    leak_per_hour: float = 0.0
    cache: float = 16 * MIB
    disk: float = 0.0
    disk_per_request: float = 0.0
    work: float | None = None
    """CPU seconds after which the container is done, for batch work."""
    threads: float = 1.0
    imbalance: float = 0.05
    """How unevenly requests are spread: each pod's share is 1 ± this."""
    containers: tuple[str, ...] = ()
    """Containers that do the work; empty means the first one. The others idle."""


def latency(*, service_seconds: float, demand: float, granted: float) -> float:
    """Return the mean response time of a pod that wants `demand` cores and gets at most `granted`."""
    if granted <= 0:
        return WORST_LATENCY
    utilisation = demand / granted
    if utilisation >= 1:
        return WORST_LATENCY
    return min(WORST_LATENCY, service_seconds / (1 - utilisation))


def from_annotations(profile: Profile, annotations: Mapping[str, str] | None) -> Profile:
    """Return `profile` with what a pod's own `sim.kubetide.io/` annotations say instead."""
    if not annotations:
        return profile
    changes: dict[str, float | Curve] = {}
    for key, text in annotations.items():
        if not key.startswith(ANNOTATION):
            continue
        name = key[len(ANNOTATION) :]
        try:
            if name in _QUANTITIES:
                changes[_QUANTITIES[name]] = quantity_float(text)
            elif name in _TIMES:
                changes[_TIMES[name]] = parse_duration(text).total_seconds()
            elif name == "load":
                changes["curve"] = Constant(float(text))
        except (InvalidInput, ValueError) as error:
            raise InvalidInput(str(error), field=key) from error
    return replace(profile, **changes) if changes else profile  # type: ignore[arg-type]


_QUANTITIES = {
    "cpu": "cpu_steady",
    "memory": "memory_base",
    "leak-per-hour": "leak_per_hour",
    "cache": "cache",
    "disk": "disk",
    "disk-per-request": "disk_per_request",
    "start-cpu": "start_cpu",
    "threads": "threads",
    "cpu-per-request": "cpu_per_request",
    "memory-per-request": "memory_per_request",
}
_TIMES = {"start-delay": "start_seconds", "work": "work"}
