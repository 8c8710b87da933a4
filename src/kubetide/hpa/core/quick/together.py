"""Autoscalers at rest, all of a sync period together: the arithmetic of `rest.ask` on arrays.

Which samples belong to an autoscaler is kept from one list of usage to the next (`Row`), so what is left of a sync
period in which little happens is a sum per autoscaler and a few comparisons of columns.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.selectors import Selector
from kubetide.hpa.core.quick.filing import LARGEST_PLAIN, NOT_PLAIN, Filing, NamespaceSamples
from kubetide.hpa.core.quick.rest import Asked, Rest
from kubetide.hpa.core.replicas import INT32_MAX
from kubetide.hpa.core.status import LITTLE

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

    def samples_of(self, samples: NamespaceSamples) -> Sequence[PodMetrics]:
        """Return the samples of its pods."""
        return self.pick(samples.items)[:-1] if self.pick is not None else ()


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


def ask_together(rows: Sequence[Row], used: Sequence[int]) -> list[Asked | None]:
    """Return for each what `ask` returns, or None where something about it is not plain."""
    if not rows:
        return []
    current, count, requested, of_requests, target, shown, shown_percent = np.array(
        [row.numbers or _NO_NUMBERS for row in rows], dtype=np.int64
    ).T
    low, high = np.array([(1.0 - row.rest.tolerance.down, 1.0 + row.rest.tolerance.up) for row in rows]).T
    total = np.array(used, dtype=np.int64)
    # A larger sum could not be multiplied by a hundred within 64 bits.
    plain = (total >= 0) & (total <= LARGEST_PLAIN)
    total = np.where(plain, total, 0)
    share = of_requests > 0
    average, percent = total // count, total * 100 // requested
    plain &= (average < EXACT) & (percent < EXACT)
    ratio = np.where(share, percent, average) / target.astype(np.float64)
    wanted = np.ceil(np.minimum(ratio * count.astype(np.float64), INT32_MAX)).astype(np.int64)
    proposal = np.where((low <= ratio) & (ratio <= high), current, wanted)
    same_percent = np.where(share, percent, -1) == shown_percent
    same = (average == shown) & same_percent
    off = np.abs(percent - shown_percent)
    near_percent = (shown_percent >= 0) & (off < np.maximum(LITTLE * shown_percent, 1))
    near = (shown >= 0) & (np.abs(average - shown) < LITTLE * shown) & np.where(share, near_percent, same_percent)
    found = zip(plain.tolist(), proposal.tolist(), same.tolist(), near.tolist(), strict=True)
    return [Asked(count, equal, close) if fits else None for fits, count, equal, close in found]


_NO_NUMBERS = (1, 1, 1, 0, 1, -1, -1)


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
