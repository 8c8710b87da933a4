"""The checkpoint form of a histogram: integers up to 10000 per bucket, a float total and the reference time.

    save   each bucket in range relative to the heaviest one, rounded; zeros are left out
    load   adds total·weight/sum to each bucket, replaces the reference, then tightens the range

A bad form changes nothing and says what is wrong with it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kubetide.stats.block import Block

MAX_SAVED_WEIGHT = 10_000


@dataclass(frozen=True, slots=True)
class Saved:
    """A histogram as a checkpoint holds it: weights relative to the heaviest bucket, which is 10000."""

    reference: int
    weights: Mapping[int, int]
    total: float


def save(block: Block) -> list[Saved]:
    """Return every column as integer weights relative to its heaviest bucket, zeros left out."""
    flat, bucket, column = block.entries(np.arange(block.width))
    weight = block.weights.reshape(-1)[flat]
    heaviest = np.zeros(block.width)
    np.maximum.at(heaviest, column, weight)
    value = np.floor(weight * (MAX_SAVED_WEIGHT / heaviest[column]) + 0.5).astype(np.int64)
    order = np.argsort(column, kind="stable")
    order = order[value[order] > 0]
    bucket, column, value = bucket[order], column[order], value[order]
    ends = np.searchsorted(column, np.arange(1, block.width + 1)).tolist()
    buckets, values = bucket.tolist(), value.tolist()
    saved, start = [], 0
    for i, end in enumerate(ends):
        pairs = dict(zip(buckets[start:end], values[start:end], strict=True))
        saved.append(Saved(int(block.reference[i]), pairs, float(block.total[i])))
        start = end
    return saved


def load(block: Block, column: int, saved: Saved) -> None:
    """Add a saved histogram to a column and take its reference; a bad one changes nothing: ValueError."""
    if not (saved.total >= 0 and math.isfinite(saved.total)):
        raise ValueError(f"the total weight {saved.total} is not a non-negative number")
    for bucket, weight in saved.weights.items():
        if not 0 <= bucket < block.buckets.count:
            raise ValueError(f"bucket {bucket} is outside the {block.buckets.count} buckets of the histogram")
        if weight < 0:
            raise ValueError(f"bucket {bucket} has the negative weight {weight}")
    block.reference[column] = saved.reference
    weight_sum = sum(saved.weights.values())
    if weight_sum == 0:
        return
    at = np.fromiter(saved.weights.keys(), dtype=np.int64, count=len(saved.weights))
    ratio = saved.total / weight_sum
    block.weights[at, column] += np.fromiter(saved.weights.values(), dtype=np.float64, count=at.size) * ratio
    block.total[column] += saved.total
    block.low[column] = min(block.low[column], at.min())
    block.high[column] = max(block.high[column], at.max())
    block.tighten(np.array([column]))
