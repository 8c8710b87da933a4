"""What a request would have meant in the time that was looked at.

days above       container-days in which memory passed the request at least once
minutes above    minutes in which a container used more CPU than the request
slack            1 - Σ min(usage, request) / Σ request
"""

import msgspec
import numpy as np

from kubetide.recommend.core.workloads import Sizes, Usage
from kubetide.stats.buckets import Floats

_DAY = 86400


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
        per_day = max(1, _DAY // usage.step)
        days = sum(int(above[at : at + per_day].any(axis=0).sum()) for at in range(0, len(above), per_day))
        memory_slack = _slack(usage.memory, float(requests.memory_bytes))
    if requests.cpu_millis is not None:
        cores = requests.cpu_millis / 1000
        minutes = float((usage.cpu > cores).sum()) * usage.step / 60
        cpu_slack = _slack(usage.cpu, cores)
    return Backtest(memory_days_above=days, cpu_minutes_above=minutes, cpu_slack=cpu_slack, memory_slack=memory_slack)


def _slack(used: Floats, request: float) -> float | None:
    there = np.isfinite(used)
    count = int(there.sum())
    if not count or request <= 0:
        return None
    return 1.0 - float(np.minimum(used[there], request).sum()) / (request * count)
