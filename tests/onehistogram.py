"""One histogram: a block of a single column, for laws that are easier to say of one than of many."""

from datetime import timedelta

from kubetide.stats.block import Block
from kubetide.stats.buckets import Buckets
from kubetide.stats.instants import ZERO_TIME
from kubetide.stats.saved import Saved, load, save


class Histogram:
    """A histogram of one scheme and half-life; without a half-life weights do not fade."""

    __slots__ = ("block",)

    def __init__(self, buckets: Buckets, half_life: timedelta | None = None) -> None:
        self.block = Block(buckets, half_life)

    def add(self, value: float, weight: float = 1.0, at: int = ZERO_TIME) -> None:
        """Add one sample."""
        self.block.add([0], value, weight, at)

    def subtract(self, value: float, weight: float = 1.0, at: int = ZERO_TIME) -> None:
        """Take one sample back."""
        self.block.subtract([0], value, weight, at)

    def merge(self, other: "Histogram") -> None:
        """Add all of `other`, which stays as it is."""
        self.block.merge([0], other.block)

    def percentile(self, p: float) -> float:
        """Return the end of the bucket where the running sum reaches p of the total; 0 when empty."""
        return float(self.block.percentiles([p])[0, 0])

    @property
    def empty(self) -> bool:
        """Return whether no weight worth counting is held."""
        return bool(self.block.empty()[0])

    def save(self) -> Saved:
        """Return the checkpoint form."""
        return save(self.block)[0]

    def load(self, saved: Saved) -> None:
        """Add a checkpoint form and take its reference."""
        load(self.block, 0, saved)
