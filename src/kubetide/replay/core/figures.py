"""What is counted, per workload: sums that add up over blocks, and the figures that follow from them.

A cell is a container-period with at least half of its samples, after the warm-up, with a size in force. u = usage,
r = request; sums over samples and cells.

    slack            1 - Σ min(u, r) / Σ r
    footprint        memory: Σ r / Σ (peak of the cell × samples); CPU: Σ r / Σ u
    overruns         share of cells whose memory passed the limit in some sample
    work above       Σ max(u - r, 0) / Σ u
    cost             memory: footprint + 20 × overruns; CPU: (Σ r + 20 Σ max(u - r, 0)) / the same of p95 of each cell
    changes          moves of a request by more than 1 % in counted cells, per container-week of these
    under            share of samples above a request, CPU or memory
    throttled work   share of work in intervals with throttling, of the work of which that is known

Sums are kept per workload, so that intervals can be drawn by workload and that parts merge in any order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats, Ints

PRICE = 20.0
"""An overrun costs as much as 20 container-periods of the clairvoyant's memory, work above 20 times reserved work."""
_SUMS = (
    "cells", "overruns", "memory_reserved", "memory_used", "memory_peaks", "cpu_reserved", "cpu_used", "cpu_work",
    "cpu_clairvoyant", "samples", "under", "changes", "restarts", "weeks", "core_hours", "gib_hours", "throttled_work",
    "throttling_known",
)  # fmt: skip
SUMS = {name: place for place, name in enumerate(_SUMS)}


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per hour, in any currency."""

    core: float = 0.0
    gib: float = 0.0


FREE = Prices()


def empty(workloads: int) -> Floats:
    """Return sums of nothing: one row per figure, one column per workload."""
    return np.zeros((len(SUMS), workloads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One period of a block: samples by containers, and the sizes in force for each sample."""

    cpu: Floats
    memory: Floats
    throttled: Floats | None
    cpu_request: Floats
    memory_request: Floats
    memory_limit: Floats
    cpu_plan: Floats
    """The clairvoyant's request of each container."""
    interval_seconds: int


def count(sums: Floats, cell: Cell, workloads: Ints) -> npt.NDArray[np.bool_]:
    """Add one cell of every container to the sums; return whose cell counts."""
    width = sums.shape[1]

    def add(name: str, amounts: npt.ArrayLike) -> None:
        sums[SUMS[name]] += np.bincount(workloads, weights=np.asarray(amounts), minlength=width)

    steps = cell.cpu.shape[0]
    hours = cell.interval_seconds / 3600.0
    parts = []
    if (memory := _counted(cell.memory, cell.memory_request)) is not None:
        have, used, requested = memory
        limit = np.where(np.isnan(cell.memory_limit), requested, np.fmax(cell.memory_limit, requested))
        reserved = summed(requested)
        add("cells", np.logical_or.reduce(have, axis=0).astype(np.float64))
        add("overruns", np.logical_or.reduce(used > limit, axis=0).astype(np.float64))
        add("memory_reserved", reserved)
        add("memory_used", summed(np.minimum(used, requested)))
        add("memory_peaks", used.max(axis=0) * have.sum(axis=0))
        add("gib_hours", reserved * hours / 2.0**30)
        parts.append((have, used > requested))
    if (cpu := _counted(cell.cpu, cell.cpu_request)) is not None:
        have, used, requested = cpu
        reserved, work = summed(requested), summed(used)
        add("cpu_reserved", reserved)
        add("cpu_used", summed(np.minimum(used, requested)))
        add("cpu_work", work)
        plan = cell.cpu_plan * have
        above = summed(np.maximum(used - plan, 0.0))
        add("cpu_clairvoyant", np.where(have.any(axis=0), summed(plan) + PRICE * above, 0.0))
        add("core_hours", reserved * hours)
        if cell.throttled is not None:
            add("throttled_work", summed(np.where(cell.throttled > 0.0, used, 0.0)))
            add("throttling_known", summed(np.where(np.isnan(cell.throttled), 0.0, used)))
        parts.append((have, used > requested))
    if not parts:
        return np.zeros(cell.cpu.shape[1], dtype=np.bool_)
    seen, under = (np.logical_or.reduce(each) for each in zip(*parts, strict=True))
    counts: npt.NDArray[np.bool_] = seen.any(axis=0)
    add("samples", seen.sum(axis=0).astype(np.float64))
    add("under", under.sum(axis=0).astype(np.float64))
    add("weeks", counts * (steps * cell.interval_seconds / 604800.0))
    return counts


def summed(samples: Floats) -> Floats:
    """Return the sum of each column, added line by line: the last bit must not depend on how many columns there are."""
    # NumPy would add a single column in pairs.
    total: Floats = samples.cumsum(axis=0)[-1] if samples.shape[1] == 1 else np.add.reduce(samples, axis=0)
    return total


def _counted(usage: Floats, request: Floats) -> tuple[npt.NDArray[np.bool_], Floats, Floats] | None:
    """Return which samples count, and their usage and request; 0 where they do not. None where none does."""
    have = ~(np.isnan(usage) | np.isnan(request))
    # The share of samples is that of usage; where a size came into force later the cell counts from there on.
    good = (2 * (~np.isnan(usage)).sum(axis=0) >= len(usage)) & have.any(axis=0)
    if not good.any():
        return None
    if have.all():
        return have, usage, request
    have &= good
    return have, np.where(have, usage, 0.0), np.where(have, request, 0.0)


def add_changes(sums: Floats, moved: Ints, restarts: Ints, workloads: Ints) -> None:
    """Add how often requests moved, and how often that took a restart."""
    for name, amounts in (("changes", moved), ("restarts", restarts)):
        sums[SUMS[name]] += np.bincount(workloads, weights=amounts, minlength=sums.shape[1])


def clairvoyant_cpu(cpu: Floats) -> Floats:
    """Return p95 of each container: the cheapest single request where work above costs 20 times as much."""
    if not np.isnan(cpu).any():
        last = max(math.ceil((1.0 - 1.0 / PRICE) * len(cpu)) - 1, 0)
        partitioned: Floats = np.partition(cpu, last, axis=0)[last]
        return partitioned
    ordered = np.sort(cpu, axis=0)  # NaN last
    number = (~np.isnan(cpu)).sum(axis=0)
    place = np.maximum(np.ceil((1.0 - 1.0 / PRICE) * number).astype(np.int64) - 1, 0)
    found: Floats = np.take_along_axis(ordered, place[None], axis=0)[0]
    return found


def figures(sums: Floats, prices: Prices = FREE) -> dict[str, float]:
    """Return the figures of all workloads together; NaN where there is nothing to divide by."""
    total = {name: float(sums[place].sum()) for name, place in SUMS.items()}
    above = total["cpu_work"] - total["cpu_used"]
    footprint = _ratio(total["memory_reserved"], total["memory_peaks"])
    overruns = _ratio(total["overruns"], total["cells"])
    found = {
        "cells": total["cells"],
        "memory_slack": 1.0 - _ratio(total["memory_used"], total["memory_reserved"]),
        "memory_footprint": footprint,
        "overruns": overruns,
        "memory_cost": footprint + PRICE * overruns,
        "cpu_slack": 1.0 - _ratio(total["cpu_used"], total["cpu_reserved"]),
        "cpu_footprint": _ratio(total["cpu_reserved"], total["cpu_work"]),
        "work_above": _ratio(above, total["cpu_work"]),
        "cpu_cost": _ratio(total["cpu_reserved"] + PRICE * above, total["cpu_clairvoyant"]),
        "under": _ratio(total["under"], total["samples"]),
        "changes": _ratio(total["changes"], total["weeks"]),
        "restarts": _ratio(total["restarts"], total["weeks"]),
        "throttled_work": _ratio(total["throttled_work"], total["throttling_known"]),
        "core_hours": total["core_hours"] if total["samples"] else float("nan"),
        "gib_hours": total["gib_hours"] if total["samples"] else float("nan"),
    }
    if prices.core or prices.gib:
        found["money"] = prices.core * found["core_hours"] + prices.gib * found["gib_hours"]
    return found


def intervals(draws: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the middle 95 % of each figure over bootstrap draws."""
    found = {}
    for name in draws[0] if draws else ():
        values = sorted(draw[name] for draw in draws)
        if all(value == value for value in values):
            last = len(values) - 1
            found[name] = (values[round(0.025 * last)], values[round(0.975 * last)])
    return found


def _ratio(number: float, divisor: float) -> float:
    return number / divisor if divisor else float("nan")
