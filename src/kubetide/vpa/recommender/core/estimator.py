"""From histograms to amounts: percentile, margin, confidence, floor, each an idea of its own.

    target   p90 of CPU and of memory peaks
    lower    p50 × (1 + 0.001/confidence)^−2
    upper    p95 × (1 + 1/confidence)

each with a margin of 15 % before the factor, and never below the pod minimum (25 m, 250 MiB) divided by the number
of containers that get a recommendation. Amounts are whole millicores and bytes, truncated after *every* step, because
upstream does and a recommendation must not depend on who computed it. Confidence grows with the age and number
of CPU samples, for memory too: with none the upper bound is infinite (1e14) and the lower one is the floor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.policy import CPU

MAX_AMOUNT = 1e14
BOUNDS = ("target", "lower", "upper")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimation:
    """The numbers of the estimate; every one is a flag."""

    target_cpu: float = 0.9
    target_memory: float = 0.9
    lower_cpu: float = 0.5
    lower_memory: float = 0.5
    upper_cpu: float = 0.95
    upper_memory: float = 0.95
    margin: float = 0.15
    confidence_cpu: timedelta = _DAY
    confidence_memory: timedelta = _DAY
    min_cpu_millis: float = 25.0
    min_memory_bytes: float = 250.0 * 1024 * 1024

    def percentiles(self, resource: str) -> tuple[float, float, float]:
        """Return the percentiles of target, lower and upper bound."""
        if resource == CPU:
            return self.target_cpu, self.lower_cpu, self.upper_cpu
        return self.target_memory, self.lower_memory, self.upper_memory

    def interval(self, resource: str) -> timedelta:
        """Return the length of history that counts as full confidence."""
        return self.confidence_cpu if resource == CPU else self.confidence_memory

    def pod_minimum(self, resource: str) -> float:
        """Return the least that a pod is recommended."""
        return self.min_cpu_millis if resource == CPU else self.min_memory_bytes


def amount(values: Floats) -> Ints:
    """Return floats as amounts: truncated, within 0…1e14; what is not a number becomes 0."""
    whole: Ints = np.clip(np.nan_to_num(values, nan=0.0, posinf=MAX_AMOUNT), 0.0, MAX_AMOUNT).astype(np.int64)
    return whole


def measured(resource: str, values: Floats) -> Ints:
    """Return percentiles (cores, bytes) as amounts (millicores, bytes)."""
    return amount(values * 1000.0 if resource == CPU else values)


def with_margin(amounts: Ints, fraction: Floats) -> Ints:
    """Return amounts with the safety margin on top."""
    raised: Ints = amounts + amount(amounts * fraction)
    return raised


def confidence(first: Ints, last: Ints, count: Ints, interval: timedelta) -> Floats:
    """Return 0 for no history up to 1 and beyond for a full interval of minutely samples."""
    days = (last - first) / (interval / timedelta(microseconds=1))
    samples = count / (interval / timedelta(minutes=1))
    result: Floats = np.minimum(days, samples)
    return result


def factor(bound: str, trust: Floats) -> Floats:
    """Return what a bound is multiplied with, given the confidence."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if bound == "upper":
            return 1.0 + 1.0 / trust
        if bound == "lower":
            base = 1.0 + 0.001 / trust
            return 1.0 / (base * base)
    return np.ones_like(trust)


def scaled(amounts: Ints, by: Floats) -> Ints:
    """Return amounts times a factor; 0 times infinity is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return amount(amounts * by)


def floors(resource: str, estimation: Estimation, containers: Ints) -> Ints:
    """Return the least amount per container of a pod with that many recommended containers."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return amount(estimation.pod_minimum(resource) * (1.0 / containers))


def round_up(amounts: Ints, multiple: int) -> Ints:
    """Return amounts rounded up to a multiple; 1 or less changes nothing."""
    if multiple <= 1:
        return amounts
    rounded: Ints = -(-amounts // multiple) * multiple
    return rounded


def estimate(
    resource: str,
    percentiles: Floats,
    *,
    first: Ints,
    last: Ints,
    count: Ints,
    margin: Floats,
    containers: Ints,
    estimation: Estimation,
) -> Mapping[str, Ints]:
    """Return target, lower and upper amounts; `percentiles` has one row for each of them."""
    trust = confidence(first, last, count, estimation.interval(resource))
    floor = floors(resource, estimation, containers)
    result = {}
    for bound, values in zip(BOUNDS, percentiles, strict=True):
        raised = with_margin(measured(resource, values), margin)
        if bound != "target":
            raised = scaled(raised, factor(bound, trust))
        result[bound] = np.maximum(raised, floor)
    return result
