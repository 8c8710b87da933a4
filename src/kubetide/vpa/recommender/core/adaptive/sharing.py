"""Memory as two numbers: requests that fill nodes by what is usually needed, limits to live through peaks.

Peaks of containers on one node seldom meet, so a node full of requests needs less than the sum of all peaks. A request
is a factor times something between a container's usual mean and usual peak. The factor is learned by the fleet: its
containers are placed on imagined nodes of `NODE`, in several ways, each exactly full of requests; at the worst moment
of a window those furthest above their requests would be evicted until the rest fits. Every factor of a grid is charged
with what it reserves, over the peaks, plus `PRICE` for each container-window evicted, and the cheapest holds.

The limit leaves room for twice the highest peak and the usual peaks of four mean containers more: enough to live
through what was never seen, while a leak still ends at a fifth of the node.
"""

from itertools import islice
from math import gcd
from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns
from kubetide.vpa.recommender.core.adaptive.distrust import Distrust
from kubetide.vpa.recommender.core.adaptive.hour import MemoryHour
from kubetide.vpa.recommender.core.adaptive.margin import LEAST_BYTES
from kubetide.vpa.recommender.core.adaptive.windows import KEPT, Closed, Windows

Mask = npt.NDArray[np.bool_]

NODE: Final = 20
PRICE: Final = 28.0
"""Above the price of an OOM kill (`margin`): real placements are worse than those that can be imagined."""
FACTORS: Final = np.concatenate([0.7 + 0.02 * np.arange(40), 1.5 + 0.05 * np.arange(31)])
_OF_MEAN, _OF_PEAK, _OF_FLEET = 0.4, 0.6, 0.05
"""The part of the fleet insures small containers, for next to nothing."""
_PLACEMENTS: Final = 5
_KEEP: Final = 0.97
_KEEP_HOUR: Final = 0.9
"""What a day, and an hour of the first day, leaves of what was charged before."""
_FIRST_FACTOR: Final = 1.5
_BETTER: Final = 0.005
"""What another factor must save before it is taken: a change of the factor moves the requests of all."""
_BAND_UP, _BAND_DOWN, _BAND_YOUNG = 0.15, 0.08, 0.2
"""A request stays while it is this close to what it should be: errors of containers on a node cancel out. In the first
day, when every hour moves what it should be, the widest holds both ways."""
_MOVE, _MOVE_YOUNG = 0.05, 0.15
"""What a change must move, in mean peaks of the fleet: a node hardly notices what small containers need."""
_WRONG: Final = 2.0
"""A request that is off by this factor moves whatever it is worth."""
_LIMIT_PEAKS: Final = 2.0
_LIMIT_FLEET: Final = 4.0
_CLOSE_TO_LIMIT: Final = 0.7


class SharingSizer:
    """Requests and limits in bytes."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        size = windows.columns.size
        self.columns = FleetColumns(size, {"worst": _PLACEMENTS, "request": 1, "limit": 1})
        self.fleet = FleetColumns(
            1, {"evicted": len(FACTORS), "reserved": 1, "peaks": 1, "cells": 1, "factor": 1, "days": 1}
        )
        self.fleet["factor"] = np.full((1, 1), _FIRST_FACTOR)
        self._orders = _placements(size)

    def place(self) -> None:
        """Put the containers on imagined nodes anew: there are others."""
        self._orders = _placements(self.columns.size)

    def observe(self, hour: MemoryHour, closed: Closed, *, day_ends: bool, usual: Floats) -> None:
        """Take in an hour whose moments were noted, and the windows it closed; `usual` is what they knew before it."""
        young = self.fleet["days"][0, 0] <= 0.0
        if day_ends or young:
            peak = hour.peak if young else np.where(closed.day, closed.peak, 0.0)
            self._charge(np.nan_to_num(peak), usual)
            self.columns["worst"] = np.zeros((1, 1))
        if day_ends:
            if young:
                # What the hours of the first day have charged counts as one window from now on.
                for name in ("evicted", "reserved", "peaks", "cells"):
                    self.fleet[name] *= 1.0 - _KEEP_HOUR
            self.fleet["days"] += 1.0

    def base(self) -> Floats:
        """Return what a container usually needs of a node it shares, before the factor; 0 where it was never seen."""
        mean, peak = self._windows.usual()
        needed = _OF_MEAN * mean + _OF_PEAK * peak + _OF_FLEET * self._mean_peak()
        result: Floats = np.where(self._windows.known(), needed, 0.0)
        return result

    def decide(self, distrust: Distrust | None = None) -> tuple[Floats, Floats]:
        """Return requests and limits in bytes."""
        own, fleet = self.columns, self.fleet
        self._choose()
        target = np.maximum(float(fleet["factor"][0, 0]) * self.base(), LEAST_BYTES)
        if distrust is not None:
            target = target * distrust.caution()
        current = own["request"][0]
        off = self._is_off(current, target)
        known = self._windows.known()
        own["request"] = np.where(known & off, target, current)
        request = np.maximum(own["request"][0], LEAST_BYTES)
        highest = self._windows.recent(KEPT)
        room = np.maximum(_LIMIT_PEAKS * highest + _LIMIT_FLEET * self._mean_peak(), request)
        limit = own["limit"][0]
        if distrust is not None:
            room = np.maximum(room, _LIMIT_PEAKS * distrust.floor())
        moves = (highest > _CLOSE_TO_LIMIT * limit) | (limit < request) | off
        own["limit"] = np.where(known & moves, room, limit)
        return request, np.maximum(own["limit"][0], request)

    def _is_off(self, current: Floats, target: Floats) -> Mask:
        """Return which requests are so far from what they should be that a change pays."""
        grown = self._windows.grown
        up, down = np.where(grown, _BAND_UP, _BAND_YOUNG), np.where(grown, _BAND_DOWN, _BAND_YOUNG)
        worth = np.where(grown, _MOVE, _MOVE_YOUNG) * self._mean_peak()
        outside = (target > (1.0 + up) * current) | (target < (1.0 - down) * current)
        wrong = (target > _WRONG * current) | (_WRONG * target < current)
        off: Mask = outside & (wrong | (np.abs(target - current) > worth))
        return off

    def _mean_peak(self) -> float:
        """Return the mean over the fleet of the usual peak."""
        known = self._windows.known()
        if not known.any():
            return 0.0
        _, peak = self._windows.usual()
        return float(np.add.accumulate(peak[known])[-1]) / float(np.count_nonzero(known))

    def note(self, samples: Floats) -> None:
        """Remember for every imagined node what its containers used at its fullest moment of the window.

        Samples are rows of moments by containers; moments may come one by one.
        """
        used = np.nan_to_num(samples)
        worst = self.columns["worst"]
        for number, order in enumerate(self._orders):
            nodes = _by_node(used, order)
            full = np.add.reduce(nodes, axis=2)
            moment = np.argmax(full, axis=0)
            now = np.take_along_axis(nodes, moment[None, :, None], axis=0)[0]
            before = _by_node(worst[number : number + 1], order)[0]
            fuller = np.add.reduce(now, axis=1) > np.add.reduce(before, axis=1)
            flat = np.where(fuller[:, None], now, before).reshape(-1)[: order.size]
            worst[number, order] = flat

    def _charge(self, peak: Floats, base: Floats) -> None:
        """Charge every factor for the window that just closed; `peak` is 0 where there was none."""
        fleet = self.fleet
        kept = _KEEP if fleet["days"][0, 0] > 0.0 else _KEEP_HOUR
        there = (peak > 0.0) & (base > 0.0)
        if not there.any():
            return
        base = np.where(there, base, 0.0)
        evicted = np.zeros(len(FACTORS))
        for number, order in enumerate(self._orders):
            used = _by_node(np.where(there, self.columns["worst"][number], 0.0)[None], order)[0]
            reserved = _by_node(base[None], order)[0]
            for place, factor in enumerate(FACTORS):
                evicted[place] += _evictions(used, factor * reserved) / len(self._orders)
        for name, value in (
            ("evicted", evicted[:, None]),
            ("reserved", np.add.accumulate(base)[-1]),
            ("peaks", np.add.accumulate(np.where(there, peak, 0.0))[-1]),
            ("cells", float(np.count_nonzero(there))),
        ):
            fleet[name] = kept * fleet[name] + value

    def _choose(self) -> None:
        """Take the factor that would have been cheapest, if it is cheaper by enough."""
        fleet = self.fleet
        cells = float(fleet["cells"][0, 0])
        if cells <= 0.0 or self.columns.size < NODE:
            # Too few to fill a node with: what is imagined of them proves nothing.
            return
        reserved = FACTORS * float(fleet["reserved"][0, 0]) / max(float(fleet["peaks"][0, 0]), 1.0)
        evicted = fleet["evicted"][:, 0]
        # What the next smaller factor would have met may come next.
        cautious = (evicted + np.concatenate([evicted[:1], evicted[:-1]])) * 0.5
        cost = reserved + PRICE * cautious / cells
        best = int(np.argmin(cost))
        current = int(np.argmin(np.abs(FACTORS - float(fleet["factor"][0, 0]))))
        if cost[current] - cost[best] > _BETTER:
            fleet["factor"] = np.full((1, 1), FACTORS[best])


def _evictions(used: Floats, reserved: Floats) -> float:
    """Return how many containers nodes evict: those furthest above their request first, until the rest fits."""
    excess = np.add.reduce(used - reserved, axis=1)
    full = excess > 1.0
    if not full.any():
        return 0.0
    used, reserved, excess = used[full], reserved[full], excess[full]
    order = np.argsort(reserved - used, axis=1, kind="stable")
    freed = np.add.accumulate(np.take_along_axis(used, order, axis=1), axis=1)
    before = np.concatenate([np.zeros((len(freed), 1)), freed[:, :-1]], axis=1)
    return float(np.count_nonzero(before < excess[:, None] - 1.0))


def _placements(size: int) -> list[Ints]:
    """Return a few fixed ways to put columns on nodes, far from each other and the same in every process."""
    steps = list(islice((step for step in range(max(2, size * 3 // 8), size) if gcd(step, size) == 1), _PLACEMENTS))
    places = np.arange(size, dtype=np.int64)
    orders = [places * step % size for step in steps]
    return orders + [places] * (_PLACEMENTS - len(orders))


def _by_node(rows: Floats, order: Ints) -> Floats:
    """Return rows by columns as rows by nodes by containers; the last node is filled up with zeros."""
    nodes = -(-order.size // NODE)
    padded = np.zeros((len(rows), nodes * NODE))
    padded[:, : order.size] = rows[:, order]
    return padded.reshape(len(rows), nodes, NODE)
