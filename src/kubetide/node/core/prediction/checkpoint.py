"""Model checkpoints as files: JSON with both histograms, one file per model, named like the model.

    {"UID": …, "CPU": {"referenceTimestamp", "bucketWeights", "totalWeight"}, "Memory": {…}, "LastUpdated": …}

The file name is the identity; the UID inside is only information. Weights are scaled so that the largest bucket is
10000.
"""

from datetime import datetime

import msgspec

from kubetide.api.values.codec import decode, encode
from kubetide.stats.instants import microseconds, moment
from kubetide.stats.saved import Saved


class SavedHistogram(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One histogram in a checkpoint."""

    reference_timestamp: datetime | None = None
    bucket_weights: dict[int, int] | None = None
    total_weight: float = 0.0


class ModelCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one model."""

    uid: str = msgspec.field(name="UID", default="")
    cpu: SavedHistogram | None = msgspec.field(name="CPU", default=None)
    memory: SavedHistogram | None = msgspec.field(name="Memory", default=None)
    last_updated: datetime | None = msgspec.field(name="LastUpdated", default=None)


def _histogram(saved: Saved) -> SavedHistogram:
    return SavedHistogram(
        reference_timestamp=moment(saved.reference), bucket_weights=dict(saved.weights), total_weight=saved.total
    )


def _saved(histogram: SavedHistogram | None) -> Saved | None:
    if histogram is None:
        return None
    return Saved(microseconds(histogram.reference_timestamp), histogram.bucket_weights or {}, histogram.total_weight)


def to_json(identity: str, cpu: Saved, memory: Saved, now: datetime) -> bytes:
    """Return the content of a checkpoint file."""
    return encode(ModelCheckpoint(uid=identity, cpu=_histogram(cpu), memory=_histogram(memory), last_updated=now))


def from_json(data: bytes) -> tuple[Saved | None, Saved | None]:
    """Return the CPU and memory histograms of a file, None where missing; raise DecodeError."""
    checkpoint = decode(data, ModelCheckpoint, what="model checkpoint")
    return _saved(checkpoint.cpu), _saved(checkpoint.memory)
