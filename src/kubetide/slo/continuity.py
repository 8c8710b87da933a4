"""Two ways to keep what is lent from swinging; both are off unless asked for.

- Growth limit: shrinking happens at once (prod pods need it), growing by at most a share of the capacity per update.
- Gradual release: what a high-priority pod used is given back over one aggregation window after it left:

      still counted = usage · (1 − time since it left / window)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.quantity import ZERO, Quantity
from kubetide.api.resources import CPU, MEMORY, Amounts, add
from kubetide.slo.overcommit.result import BATCH_CPU, BATCH_MEMORY, ResourceItem


@dataclass(frozen=True, slots=True)
class Departure:
    """A high-priority pod that left, and what it last used."""

    left_at: datetime
    usage: Amounts


def lingering(departures: Iterable[Departure], window: timedelta, now: datetime) -> Amounts:
    """Return what pods that left still count for."""
    total: Amounts = {}
    for departure in departures:
        age = now - departure.left_at
        if not timedelta(0) <= age < window:
            continue
        share = 1 - age / window
        total = add(total, {n: Quantity(int(q.nanos * share), q.notation) for n, q in departure.usage.items()})
    return total


def limit_growth(
    items: Iterable[ResourceItem],
    current: Mapping[str, Quantity],
    capacity: Mapping[str, Quantity],
    percent: int,
) -> tuple[ResourceItem, ...]:
    """Return the items with batch resources that grow cut to the allowed step. A first value is taken as it is."""
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
