"""Where the samples of an autoscaler at rest stand in a list of usage, and what they ask of it.

Which samples belong to an autoscaler is kept from one list to the next (`Row`), so what is left of most reconciles is
a sum. `ask_alone` is `rest.ask` on that sum, for one autoscaler; `quick.together` does the same for many on arrays.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.selectors import Selector
from kubetide.hpa.core.quick.filing import LARGEST_PLAIN, NOT_PLAIN, Filing, NamespaceSamples
from kubetide.hpa.core.quick.rest import Asked, Rest, asked_for
from kubetide.hpa.core.replicas import Usage

EXACT = 2**53
"""Below this every whole number is a double, so that comparing as doubles is comparing as whole numbers."""
MOST_PODS = 2**12
"""Sums over more pods are left to whole numbers without end."""


class Row(msgspec.Struct, frozen=True):
    """One autoscaler at rest: where the samples of its pods stand in a list of usage, and its numbers for arrays."""

    rest: Rest
    filing: Filing
    pick: Callable[[Sequence[Any]], tuple[Any, ...]] | None
    """The values of its pods and a 0; None where the samples are not those of just its pods."""
    numbers: tuple[int, ...] | None
    """Replicas, pods, requests, 1 if the target is a share of them, target, average and percent shown (-1: none)."""

    def keep(self, samples: NamespaceSamples) -> Callable[[], Sequence[PodMetrics]]:
        """Return the samples of its pods, for later."""
        return samples.keep(self.pick) if self.pick is not None else tuple


def row_of(rest: Rest, selector: Selector, samples: NamespaceSamples, known: Row | None = None) -> Row:
    """Return the row of an autoscaler; what it takes from `known` holds as long as the same samples are listed."""
    filing = samples.filing
    if known is not None and known.filing is filing:
        if known.rest is rest:
            return known
        if known.rest.seen.pods is rest.seen.pods:
            return Row(rest, filing, known.pick, _numbers(rest))
    names = rest.requests
    positions = filing.positions(selector, names)
    listed = [filing.names[position] for position in positions]
    if len(listed) != len(names) or set(listed) != names.keys() or len(names) > MOST_PODS:
        return Row(rest, filing, None, None)
    # With the 0 at the end of the values it is a tuple even for a single pod.
    return Row(rest, filing, itemgetter(*positions, -1), _numbers(rest))


def used_by(row: Row, samples: NamespaceSamples, *, at_most: int | None) -> int:
    """Return what its pods use together, or `NOT_PLAIN`; a sample over `at_most` may be one that no node allows."""
    if row.pick is None or row.numbers is None:
        return NOT_PLAIN
    values = row.pick(samples.millis(row.rest.resource))
    if min(values) < 0 or (at_most is not None and max(values) > at_most):
        return NOT_PLAIN
    return sum(values)


def ask_alone(row: Row, used: int) -> Asked | None:
    """Return what `rest.ask` returns for pods that use so much together, or None where something is not plain."""
    numbers = row.numbers
    if numbers is None or not 0 <= used <= LARGEST_PLAIN:
        return None
    _, count, requested, of_requests, target, _, _ = numbers
    average, percent = used // count, used * 100 // requested
    if percent >= EXACT:
        return None
    usage = Usage(percent / target, average, percent) if of_requests else Usage(average / target, average)
    return asked_for(row.rest, usage, count)


def _numbers(rest: Rest) -> tuple[int, ...] | None:
    share = rest.utilization is not None
    target = rest.average if rest.utilization is None else rest.utilization
    requested = sum(rest.requests.values()) if share else 1
    if not (0 < requested < EXACT and 0 < target < EXACT):
        return None
    average = percent = -1
    if rest.shown is not None:
        average = rest.shown.average
        if not 0 <= average < EXACT:
            return None
        if rest.shown.utilization is not None:
            percent = rest.shown.utilization
            if not 0 <= percent < EXACT:
                return None
    return rest.current, len(rest.requests), requested, int(share), target, average, percent
