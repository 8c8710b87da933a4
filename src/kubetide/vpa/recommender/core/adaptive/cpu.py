"""CPU: a request that follows the container at its own cadence.

A reserved core-second costs 1, a core-second of work above the request `PRICE`. Rules propose requests from the last
hours and days: peaks of windows from an hour to a week, what is seldom exceeded within the day, the same hour of
yesterday. Where peaks last, the short windows win; where they are noise, the percentiles of the day do. Which ones,
and in what blend, is learned for each container from what each would have cost (`mixture`).

Upstream's own target is one of the rules. The cost is charged over whatever time a decision was in force, and a rule
whose proposal is not meant to hold that long has no say: with decisions once a day the same code learns what pays for
a day.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.columns import NO_SAMPLE, FleetColumns, parts
from kubetide.vpa.recommender.core.adaptive.hour import CpuHour
from kubetide.vpa.recommender.core.adaptive.mixture import FLEET_DECISIONS, charge, keep, weights

PRICE: Final = 20.0
LEAST_CORES: Final = 0.001
HOURS: Final = 25
"""The last day, and the hour before the same hour of yesterday."""
DAYS: Final = 7
_DAY: Final = 24
_WINDOWS: Final = (1, 2, 3, 6, 12, 24)
_RANKS: Final = (0.1, 0.25, 0.5)
"""Shares of the day's hours whose peak may be higher."""
_HIGH_WINDOWS: Final = (1, 3)
PERCENTILES: Final = (0.9, 0.95, 0.98)
"""What is asked of the plain recommender's histograms; the first with its margin is upstream's own target."""
_PLAIN_MARGIN: Final = 1.15
RULES: Final = {
    **{f"peak of {window} h": window for window in _WINDOWS},
    **{f"hourly peak exceeded in {rank:.0%} of the day": 1 for rank in _RANKS},
    **{f"p90 of {window} h": window for window in _HIGH_WINDOWS},
    "same hour yesterday": 1,
    "peak of 7 days": 168,
    "plain target": 24,
    "p95 of the histogram": 24,
    "p98 of the histogram": 24,
}
"""The rules, and for how many hours a proposal of each is meant to hold."""
_REACH: Final = np.array(list(RULES.values()), dtype=np.float64)[:, None]
_PRIOR: Final = list(RULES).index("p98 of the histogram")
_SCALE_KEEP: Final = 0.99


class CpuSizer:
    """Requests in cores for all containers."""

    def __init__(self, size: int) -> None:
        count = len(RULES)
        self.columns = FleetColumns(
            size,
            {
                "peaks": HOURS,
                "high": max(_HIGH_WINDOWS),
                "days": DAYS,
                "today": 1,
                "scale": 1,
                "proposals": count,
                "request": 1,
                "samples": 1,
                "above": 1,
                "regret": count,
                "spread": count,
            },
            empty={"peaks": NO_SAMPLE, "high": NO_SAMPLE, "days": NO_SAMPLE, "today": NO_SAMPLE, "scale": NO_SAMPLE},
        )
        self.fleet = FleetColumns(1, {"regret": count, "spread": count, "hours": 1, "horizon": 1, "decisions": 1})
        self._prior = np.zeros((count, 1))
        self._prior[_PRIOR] = 1.0

    def observe(self, hour: CpuHour, *, day_ends: bool) -> None:
        """Take in an hour, in cores."""
        self._count(hour)
        own = self.columns
        _push(own["peaks"], hour.peak)
        _push(own["high"], hour.high)
        own["today"] = np.fmax(own["today"], hour.peak)
        if day_ends:
            _push(own["days"], own["today"][0].copy())
            own["today"] = np.full_like(own["today"], NO_SAMPLE)

    def decide(self, percentiles: Floats) -> Floats:
        """Return requests in cores; a container that was never seen gets the least there is.

        `percentiles` are those of the plain recommender's CPU histograms, one row for each of `PERCENTILES`.
        """
        fleet = self.fleet
        # Decisions are expected to come as often as the last ones did.
        fleet["horizon"] = np.maximum(fleet["hours"], 1.0)
        self._charge()
        own, size = self.columns, self.columns.size
        request = np.empty(size)
        for part in parts(size):
            before, fresh = own["proposals"][:, part], self._proposals(percentiles[:, part], part)
            before[...] = np.where(np.isnan(fresh), before, np.maximum(fresh, LEAST_CORES))
            request[part] = np.maximum(np.add.reduce(self.shares(part) * before, axis=0), LEAST_CORES)
        # A decision about a container that was never seen is a guess: nobody is charged for it.
        own["request"] = np.where(np.isnan(own["scale"][0]), 0.0, request)
        return request

    def shares(self, part: slice) -> Floats:
        """Return the weights of the rules whose proposals hold as long as a decision does, for some containers."""
        own, fleet = self.columns, self.fleet
        reaches = fleet["horizon"] <= _REACH
        # The fleet's mean counts as a fixed number of decisions beside the container's own.
        share = FLEET_DECISIONS / np.maximum(fleet["decisions"], 1.0)
        regret = np.where(reaches, own["regret"][:, part] + share * fleet["regret"], 0.0)
        return weights(regret, own["spread"][:, part] + share * fleet["spread"], self._prior)

    def _count(self, hour: CpuHour) -> None:
        """Note what this hour adds to the bill of the decision in force."""
        own = self.columns
        used = np.maximum(hour.total / np.maximum(hour.count, 1.0), LEAST_CORES)
        before = own["scale"][0]
        scale = np.where(np.isnan(before), used, _SCALE_KEEP * before + (1.0 - _SCALE_KEEP) * used)
        own["scale"] = np.where(hour.count > 0.0, scale, before)
        own["samples"] += hour.count
        own["above"] += hour.above
        self.fleet["hours"] += 1.0

    def _charge(self) -> None:
        """Charge every rule for the time since the last decision."""
        own, fleet = self.columns, self.fleet
        request, count = own["request"][0], own["samples"][0]
        hours = float(fleet["hours"][0, 0])
        seen = (count > 0) & (request > 0.0)
        if seen.any():
            slope = hours * (count - PRICE * own["above"][0]) / np.maximum(count, 1.0)
            unit = np.where(seen, own["scale"][0], 1.0)
            kept, many = keep(hours), float(np.count_nonzero(seen))
            regrets, spreads = np.zeros((len(RULES), 1)), np.zeros((len(RULES), 1))
            for part in parts(own.size):
                regret, spread = own["regret"][:, part], own["spread"][:, part]
                distance = request[part] - own["proposals"][:, part]
                instant = np.where(seen[part], slope[part] * distance / unit[part], 0.0)
                regret[...], spread[...] = charge(regret, spread, instant, seen[part], kept)
                regrets, spreads = _added(regrets, instant), _added(spreads, instant * instant)
            fleet["decisions"] = kept * fleet["decisions"] + 1.0
            fleet["regret"] = kept * fleet["regret"] + regrets / many
            fleet["spread"] = kept * fleet["spread"] + spreads / many
        own["samples"], own["above"] = np.zeros((1, 1)), np.zeros((1, 1))
        fleet["hours"] = np.zeros((1, 1))

    def _proposals(self, percentiles: Floats, part: slice) -> Floats:
        own = self.columns
        peaks, high, days, today = (own[name][:, part] for name in ("peaks", "high", "days", "today"))
        day = peaks[-_DAY:]
        whole = np.fmax.reduce(day, axis=0)
        rows = [np.fmax.reduce(peaks[-window:], axis=0) for window in _WINDOWS]
        have = np.isfinite(day)
        count = np.add.reduce(have, axis=0)
        descending = -np.sort(np.where(have, -day, np.inf), axis=0)
        for rank in _RANKS:
            place = np.minimum((rank * count).astype(np.int64), np.maximum(count - 1, 0))
            rows.append(np.where(count > 0, np.take_along_axis(descending, place[None], axis=0)[0], NO_SAMPLE))
        rows += [np.fmax.reduce(high[-window:], axis=0) for window in _HIGH_WINDOWS]
        # The next hour began a day ago at place -24; its neighbours allow for work that moves a little.
        yesterday = np.fmax.reduce(peaks[-_DAY - 1 : -_DAY + 2], axis=0)
        rows.append(np.where(np.isnan(yesterday), whole, yesterday))
        rows.append(np.fmax(np.fmax.reduce(days, axis=0), np.fmax(today[0], whole)))
        rows += [percentiles[0] * _PLAIN_MARGIN, percentiles[1], percentiles[2]]
        return np.stack(rows)


def _push(ring: Floats, newest: Floats) -> None:
    # Row by row: rows that overlap would all be copied first.
    for older, newer in pairwise([*ring, newest]):
        older[...] = newer


def _added(sums: Floats, rows: Floats) -> Floats:
    """Return sums, as a column, and each row added to its own in order: none may depend on how a CPU splits a sum."""
    return np.add.accumulate(np.concatenate([sums, rows], axis=1), axis=1)[:, -1:]
