"""Histograms as columns of NumPy blocks against one Python object per histogram.

    python benchmarks/histograms.py [--histograms N] [--loops N]

Both sides do the same work with the same numbers in the same run: add one sample to every histogram, merge groups of
ten into one, read three percentiles of each group, and make the checkpoint form. The results are compared before any
time is printed. Memory is what each side holds, measured by tracemalloc (NumPy reports to it).
"""

import argparse
import gc
import math
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np

from kubetide.stats.bank import Bank
from kubetide.stats.buckets import exponential
from kubetide.stats.saved import save

SCHEME = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001)
STARTS = SCHEME.starts.tolist()
DAY_MICROS = 86_400_000_000
NOW = 1_767_571_200_000_000
GROUP = 10
PERCENTILES = (0.9, 0.5, 0.95)
LOG_RATIO = math.log(1.05)


class ObjectHistogram:
    """The straightforward way: a list of weights and a few numbers per histogram."""

    def __init__(self) -> None:
        self.weights = [0.0] * len(STARTS)
        self.total = 0.0
        self.low, self.high = len(STARTS) - 1, 0
        self.reference = NOW // DAY_MICROS * DAY_MICROS

    def add(self, value: float, weight: float, at: int) -> None:
        bucket = 0
        if value >= 0.01:
            bucket = min(int(math.log(value * 0.050000000000000044 / 0.01 + 1.0) / LOG_RATIO), len(STARTS) - 1)
        stored = weight * math.exp2((at - self.reference) / DAY_MICROS)
        self.weights[bucket] += stored
        self.total += stored
        if self.weights[bucket] >= 0.0001:
            self.low, self.high = min(self.low, bucket), max(self.high, bucket)

    def merge(self, other: "ObjectHistogram") -> None:
        for bucket in range(other.low, other.high + 1):
            self.weights[bucket] += other.weights[bucket]
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def percentile(self, p: float) -> float:
        if self.weights[self.low] < 0.0001:
            return 0.0
        threshold, running, bucket = p * self.total, 0.0, self.low
        while bucket < self.high:
            running += self.weights[bucket]
            if running >= threshold:
                break
            bucket += 1
        return float(STARTS[min(bucket + 1, len(STARTS) - 1)])

    def save(self) -> dict[int, int]:
        heaviest = max(self.weights[self.low : self.high + 1], default=0.0)
        if not heaviest:
            return {}
        scaled = ((b, int(self.weights[b] * 10000 / heaviest + 0.5)) for b in range(self.low, self.high + 1))
        return {bucket: weight for bucket, weight in scaled if weight}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histograms", type=int, default=20_000)
    parser.add_argument("--loops", type=int, default=20)
    given = parser.parse_args()
    count = given.histograms - given.histograms % GROUP
    rng = Random(1)
    batches = [[rng.expovariate(2.0) for _ in range(count)] for _ in range(given.loops)]

    tracemalloc.start()
    objects = [ObjectHistogram() for _ in range(count)]
    object_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    tracemalloc.start()
    bank = Bank(SCHEME, timedelta(days=1))
    columns = np.array([bank.allocate() for _ in range(count)])
    bank_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    groups = np.arange(count) // GROUP
    rows = []

    def add_objects() -> None:
        for number, batch in enumerate(batches):
            for histogram, value in zip(objects, batch, strict=True):
                histogram.add(value, 0.1, NOW + number * 60_000_000)

    def add_bank() -> None:
        for number, batch in enumerate(batches):
            bank.add(columns, np.array(batch), 0.1, NOW + number * 60_000_000)

    def merge_objects() -> list[ObjectHistogram]:
        merged = []
        for start in range(0, count, GROUP):
            result = ObjectHistogram()
            for histogram in objects[start : start + GROUP]:
                result.merge(histogram)
            merged.append(result)
        return merged

    rows.append((f"add {given.loops} × {count}", timed(add_objects)[0], timed(add_bank)[0]))
    slow, merged = timed(merge_objects)
    fast, block = timed(lambda: bank.merged(columns, groups, count // GROUP))
    rows.append((f"merge {count} into {count // GROUP}", slow, fast))
    slow, one = timed(lambda: [[h.percentile(p) for h in merged] for p in PERCENTILES])
    fast, other = timed(lambda: block.percentiles(PERCENTILES))
    assert np.allclose(np.array(one), other, rtol=1e-12), "both sides must agree before they are compared"
    rows.append((f"3 percentiles of {count // GROUP}", slow, fast))
    slow, one = timed(lambda: [h.save() for h in merged])
    fast, other = timed(lambda: save(block))
    assert all(a.keys() == dict(b.weights).keys() for a, b in zip(one, other, strict=True))
    rows.append((f"checkpoint form of {count // GROUP}", slow, fast))

    print(f"{'':34}{'objects':>12}{'columns':>12}{'ratio':>8}")
    for name, slow, fast in rows:
        print(f"{name:34}{slow * 1000:10.1f}ms{fast * 1000:10.1f}ms{slow / fast:7.1f}×")
    print(
        f"{'memory per histogram':34}{object_bytes / count:10.0f} B{bank_bytes / count:10.0f} B"
        f"{object_bytes / bank_bytes:7.1f}×"
    )


if __name__ == "__main__":
    main()
