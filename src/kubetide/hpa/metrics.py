"""How far usage is from its target: the usage ratio, in exactly the arithmetic that decides replica counts.

    utilization   U = (sum of samples x 100) // (sum of requests)      ratio = U / target percent
    raw           A = (sum of samples) // (number of samples)          ratio = A / target

`//` drops the fraction before the target divides: 99.9 % is 99 %. The final division is one of doubles. Exact
fractions would give other replica counts than every cluster shows today.
"""

import math
from collections.abc import Mapping

import msgspec

from kubetide.hpa.samples import ErrorKind, MetricFailure, Sample

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How far from 1.0 a ratio may be without any reaction, in either direction."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        """Tell whether the ratio is close enough to 1.0; both ends count, NaN does not."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Usage(msgspec.Struct, frozen=True):
    """A ratio, and the numbers that people see for it."""

    ratio: float
    average: int
    utilization: int | None = None


def utilization_of(samples: Mapping[str, Sample], requests: Mapping[str, int], target: int) -> Usage:
    """Return the percentage of the requests that is used, over the pods that have both."""
    if samples.keys() != requests.keys():
        both = samples.keys() & requests.keys()
        samples = {name: samples[name] for name in both}
        requests = {name: requests[name] for name in both}
    used, requested = sum([sample.value for sample in samples.values()]), sum(requests.values())
    if requested == 0:
        raise MetricFailure(ErrorKind.ZERO_REQUESTS, "the pods that have samples request nothing")
    percent = truncated(used * 100, requested)
    return Usage(divided(percent, target), truncated(used, len(samples)), percent)


def raw_usage_of(samples: Mapping[str, Sample], target: int) -> Usage:
    """Return the average of all samples against a target amount."""
    average = truncated(sum([sample.value for sample in samples.values()]), len(samples))
    return Usage(divided(average, target), average)


def truncated(number: int, divisor: int) -> int:
    """Divide whole numbers and drop the fraction, also below zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


def divided(number: float, divisor: float) -> float:
    """Divide as doubles; by zero gives infinity, or NaN for zero itself."""
    number, divisor = float(number), float(divisor)
    if divisor:
        return number / divisor
    return math.copysign(math.inf, number) if number else math.nan


def rounded_up(value: float) -> int:
    """Round up to a replica count within 32 bits: what is beyond them becomes the nearest end.

    NaN is no count at all: 0.
    """
    if INT32_MIN <= value <= INT32_MAX:
        return math.ceil(value)
    if math.isnan(value):
        return 0
    return INT32_MAX if value > 0 else INT32_MIN
