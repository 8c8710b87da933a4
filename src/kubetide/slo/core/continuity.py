"""Two ways to keep batch resources from swinging; both are off unless asked for.

- Growth limit: shrinking happens at once (prod pods need it), growing by at most a share of the capacity per update.
- Gradual release: what a high-priority pod counted for is given back over one aggregation window after it left:

      still counted = what it counted for · (1 − time since it left / window)

  While the node's report still holds the usage of the pod, only what goes beyond that usage is added. A pod of the
  same name that is back on the node ends the release: the newcomer counts for itself.

  A controller that has just started does not know who left before. Pods that are reported though they have gone are
  then taken to leave at that moment, and so is a pod that would have used what the node could overcommit beyond what it
  does now: a restart never makes the release faster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.slo.core.overcommit.claims import PodClaim
from kubetide.slo.core.overcommit.loads import NO_PAIR, Load, Pair, dangling
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_MEMORY, ResourceItem

_NANOS_PER_MILLI = 10**6
_BEYOND_FLOATS = 10**300


@dataclass(frozen=True, slots=True)
class Departure:
    """A high-priority pod that left, and what it last counted for."""

    left_at: datetime
    load: Load
    key: tuple[str, str] = ("", "")
    """Namespace and name; empty for a past that is not known."""


def lingering(
    departures: Iterable[Departure], pods: Sequence[PodClaim], metric: NodeMetric, window: timedelta, now: datetime
) -> tuple[Load, ...]:
    """Return what pods that left still count for."""
    back = {pod.key for pod in pods if pod.active}
    reported = dict(dangling(pods, metric))
    loads = []
    for departure in departures:
        age = now - departure.left_at
        if not timedelta(0) <= age < window or departure.key in back:
            continue
        share = 1 - age / window
        counted = reported.get(departure.key, NO_PAIR)
        load = departure.load
        loads.append(
            Load(
                _beyond(load.requested, share, NO_PAIR),
                _beyond(load.used, share, counted),
                _beyond(load.largest, share, counted),
            )
        )
    return tuple(loads)


def unknown_past(
    items: Iterable[ResourceItem],
    current: Mapping[str, Quantity],
    pods: Sequence[PodClaim],
    metric: NodeMetric,
    now: datetime,
) -> tuple[Departure, ...]:
    """Return the departures that may have happened before anybody watched.

    They are the pods that are reported though they have gone, and one that explains why the node overcommits less
    than it could. `current` is what it shows now, in the terms of the calculation; a resource that it lacks is left
    out.
    """
    wanted = {item.name: item.quantity for item in items if item.quantity is not None and item.name in current}
    cpu = max(wanted[BATCH_CPU].value - current[BATCH_CPU].value, 0) if BATCH_CPU in wanted else 0
    memory = max(wanted[BATCH_MEMORY] - current[BATCH_MEMORY], ZERO) if BATCH_MEMORY in wanted else ZERO
    held = cpu * _NANOS_PER_MILLI, memory.nanos
    gone = tuple(Departure(now, Load(NO_PAIR, usage, usage), key) for key, usage in dangling(pods, metric))
    return (*gone, Departure(now, Load(held, held, held))) if held != NO_PAIR else gone


def before_scaling(current: Mapping[str, Quantity], ratio: float) -> dict[str, Quantity]:
    """Return what a node shows in the terms of the calculation: batch-cpu without its normalization ratio."""
    return {
        name: Quantity.of(int(quantity.value / ratio)) if name == BATCH_CPU and ratio > 1 else quantity
        for name, quantity in current.items()
    }


def limit_growth(
    items: Iterable[ResourceItem],
    current: Mapping[str, Quantity],
    capacity: Mapping[str, Quantity],
    percent: int,
) -> tuple[ResourceItem, ...]:
    """Return the items with batch resources that grow cut to the allowed step. A first value is taken as it is.

    `current` is what the node shows now, in the terms of the calculation.
    """
    if percent <= 0:
        return tuple(items)
    steps = {
        BATCH_CPU: Quantity.of(capacity.get(CPU, ZERO).milli * percent // 100),
        BATCH_MEMORY: Quantity.of(capacity.get(MEMORY, ZERO).value * percent // 100),
    }
    return tuple(_limited(item, current.get(item.name), steps.get(item.name)) for item in items)


def _limited(item: ResourceItem, current: Quantity | None, step: Quantity | None) -> ResourceItem:
    if item.quantity is None or current is None or step is None or item.quantity <= current + step:
        return item
    message = f"{item.message}; growth limited to {step} per update, {item.quantity} wanted"
    return ResourceItem(item.name, current + step, item.zones, item.reset, message)


def _beyond(pair: Pair, share: float, counted: Pair) -> Pair:
    return max(_part(pair[0], share) - counted[0], 0), max(_part(pair[1], share) - counted[1], 0)


def _part(amount: int, share: float) -> int:
    # A report may claim more than a float can hold.
    return int(amount * share) if amount < _BEYOND_FLOATS else int(amount * Fraction(share))
