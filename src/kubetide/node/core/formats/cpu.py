"""CPU files: usage, throttling, quota, shares, and the conversions between the two cgroup versions.

    shares to weight      1 + (s - 2) * 9999 // 262142        2..262144 to 1..10000
    weight to shares      (w - 1) * 262142 // 9999 + 2
    request to shares     m * 1024 // 1000, clamped to 2..262144
    limit to quota        m * 100000 // 1000, at least 1000; no limit is -1

Shares to weight and back loses precision (1024 gives 39 gives 998): values are never compared in shares after a read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubetide.node.core.formats.numbers import FormatError, counters, is_index, limit, signed, unsigned

MIN_SHARES = 2
MAX_SHARES = 262144
MIN_WEIGHT = 1
MAX_WEIGHT = 10000
PERIOD_MICROS = 100000
MIN_QUOTA_MICROS = 1000


class Throttling(NamedTuple):
    """Counters of `cpu.stat`: periods, periods throttled, time throttled; a tuple: hundreds are made a second."""

    periods: int
    throttled: int
    throttled_nanos: int


def throttling(text: str, version: int) -> Throttling:
    """Parse the throttling part of `cpu.stat`; all three counters must be there."""
    if version == 1:
        return Throttling(*counters(text, ("nr_periods", "nr_throttled", "throttled_time")))
    periods, throttled, micros = counters(text, ("nr_periods", "nr_throttled", "throttled_usec"))
    return Throttling(periods, throttled, micros * 1000)


def usage_nanos_v2(text: str) -> int:
    """Return the CPU time of a v2 cgroup in nanoseconds."""
    return counters(text, ("usage_usec",))[0] * 1000


def throttled_ratio(current: Throttling, previous: Throttling) -> float:
    """Return the share of periods throttled between two readings; no period passed means 0."""
    periods = current.periods - previous.periods
    return (current.throttled - previous.throttled) / periods if periods > 0 else 0.0


def _two_fields(text: str) -> tuple[str, str]:
    fields = text.split()
    if len(fields) != 2:
        raise FormatError(f"cpu.max {text!r} does not have two fields")
    return fields[0], fields[1]


def quota_v2(text: str) -> int:
    """Return the quota field of `cpu.max`; `max` is -1."""
    return limit(_two_fields(text)[0], "quota")


def period_v2(text: str) -> int:
    """Return the period field of `cpu.max`."""
    return signed(_two_fields(text)[1], "period")


def shares_to_weight(shares: str) -> int:
    """Convert the text of `cpu.shares` to a `cpu.weight`."""
    value = signed(shares, "cpu.shares", low=MIN_SHARES, high=MAX_SHARES)
    return 1 + (value - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)


def weight_to_shares(weight: int) -> int:
    """Convert a `cpu.weight` to `cpu.shares`."""
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise FormatError(f"cpu.weight {weight} is out of range")
    return (weight - 1) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - 1) + MIN_SHARES


def milli_to_shares(milli: int) -> int:
    """Convert a CPU request in milli-cores to `cpu.shares`."""
    if milli <= 0:
        return MIN_SHARES
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def milli_to_quota(milli: int) -> int:
    """Convert a CPU limit in milli-cores to a CFS quota for the standard period; -1 is unlimited."""
    if milli <= 0:
        return -1
    return max(milli * PERIOD_MICROS // 1000, MIN_QUOTA_MICROS)


def normalized_quota(quota: int, ratio: float) -> int:
    """Divide a quota by the node's normalization ratio, rounding up; a ratio up to 1 changes nothing."""
    if quota <= 0 or ratio <= 1:
        return quota
    return math.ceil(quota / ratio)


def busy_ticks(proc_stat: str) -> int:
    """Return user + nice + system + irq + softirq of the summary line of /proc/stat.

    Waiting for I/O, time stolen by the hypervisor and guest time (already inside user) are not the node's own work.
    """
    for line in proc_stat.split("\n"):
        words = line.split()
        if len(words) >= 8 and words[0] == "cpu":
            return _busy(words)
    raise FormatError("/proc/stat has no cpu line")


def busy_ticks_by_cpu(proc_stat: str) -> dict[int, int]:
    """Return the same of every CPU that is online."""
    lines = (line.split() for line in proc_stat.split("\n") if line.startswith("cpu"))
    return {int(words[0][3:]): _busy(words) for words in lines if len(words) >= 8 and is_index(words[0][3:])}


def _busy(words: Sequence[str]) -> int:
    return sum(unsigned(words[column], "cpu ticks") for column in (1, 2, 3, 6, 7))


@dataclass(frozen=True, slots=True)
class CpuModel:
    """What /proc/cpuinfo says about model and maker; `unknown` where it is silent."""

    model: str = "unknown"
    vendor: str = "unknown"


def cpu_model(cpuinfo: str) -> CpuModel:
    """Parse model and vendor out of /proc/cpuinfo."""

    def first(*names: str) -> str:
        for line in cpuinfo.split("\n"):
            if any(name in line for name in names) and ":" in line:
                return line.split(":")[1].strip()
        return "unknown"

    return CpuModel(first("model name", "Model Name"), first("vendor_id"))


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Return the words of the first `flags` line of /proc/cpuinfo."""
    for line in cpuinfo.split("\n"):
        name, colon, words = line.partition(":")
        if colon and name.strip() == "flags":
            return frozenset(words.split())
    return frozenset()
