"""What a request would have meant, in hindsight and day by day.

In hindsight the recommendation of today is compared with the very samples it was made of: what it means for what is
known. Day by day it is judged as it would have worked: each day gets the size that the estimator would have recommended
from the days before, and is compared with what happened then. Only the second says what to expect.

days above       container-days in which memory passed the request at least once
minutes above    minutes in which a container used more CPU than the request
slack            1 - Σ min(usage, request) / Σ request
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from kubetide.recommend.core.estimators import steps_of_a_day
from kubetide.recommend.core.workloads import NOTHING, Sizes, Usage
from kubetide.stats.buckets import Floats

T = TypeVar("T", int, float)


class Backtest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How one pair of requests would have fared; None where there is no request to compare with."""

    memory_days_above: int | None = None
    cpu_minutes_above: float | None = None
    cpu_slack: float | None = None
    memory_slack: float | None = None


def backtest(usage: Usage, requests: Sizes) -> Backtest:
    """Compare requests with all samples of a container."""
    days = minutes = cpu_slack = memory_slack = None
    if requests.memory_bytes is not None:
        above = usage.memory > requests.memory_bytes  # NaN is not above anything
        per_day = steps_of_a_day(usage.step)
        days = sum(int(above[at : at + per_day].any(axis=0).sum()) for at in range(0, len(above), per_day))
        memory_slack = _slack(usage.memory, float(requests.memory_bytes))
    if requests.cpu_millis is not None:
        cores = requests.cpu_millis / 1000
        minutes = None if usage.folded else float((usage.cpu > cores).sum()) * usage.step / 60
        cpu_slack = _slack(usage.cpu, cores)
    return Backtest(memory_days_above=days, cpu_minutes_above=minutes, cpu_slack=cpu_slack, memory_slack=memory_slack)


def walk_forward(usage: Usage, requests: Sequence[Sizes]) -> Backtest | None:
    """Compare each day but the first with the requests that were recommended the evening before; None without any.

    A day before which there was no sample is not judged.
    """
    steps = steps_of_a_day(usage.step)
    judged = [
        (backtest(part, size), np.isfinite(part.memory).sum(), np.isfinite(part.cpu).sum(), size)
        for day, size in enumerate(requests, start=1)
        if size != NOTHING and (part := _rows(usage, day * steps, (day + 1) * steps)).cpu.size
    ]
    if not judged:
        return None
    return Backtest(
        memory_days_above=_sum([each.memory_days_above for each, *_ in judged]),
        cpu_minutes_above=_sum([each.cpu_minutes_above for each, *_ in judged]),
        cpu_slack=_pooled([(each.cpu_slack, count, size.cpu_millis) for each, _, count, size in judged]),
        memory_slack=_pooled([(each.memory_slack, count, size.memory_bytes) for each, count, _, size in judged]),
    )


def until(usage: Usage, days: int) -> Usage:
    """Return the first days of usage."""
    return _rows(usage, 0, days * steps_of_a_day(usage.step))


def _rows(usage: Usage, begin: int, end: int) -> Usage:
    start = usage.start + begin * usage.step
    return replace(usage, start=start, cpu=usage.cpu[begin:end], memory=usage.memory[begin:end])


def _sum(values: Sequence[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None


def _pooled(days: Sequence[tuple[float | None, int, int | None]]) -> float | None:
    """Return the slack of several days: each counts by its samples times its request."""
    weights = [(slack, float(count) * (size or 0)) for slack, count, size in days if slack is not None]
    whole = sum(weight for _, weight in weights)
    return sum(slack * weight for slack, weight in weights) / whole if whole else None


def _slack(used: Floats, request: float) -> float | None:
    there = np.isfinite(used)
    count = int(there.sum())
    if not count or request <= 0:
        return None
    return 1.0 - float(np.minimum(used[there], request).sum()) / (request * count)
