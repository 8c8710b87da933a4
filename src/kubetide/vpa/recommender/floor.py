"""The OOM floor: memory that a killed container keeps, fading slowly.

The reference raises its estimate after a kill, but the raised peak is one sample among many: a percentile below the
top forgets it within days and the container is shrunk into the same kill again. The floor remembers the raised amount
by itself and halves every week (`--oom-floor-half-life`):

    floor(t) = bytes · 2^−((t − at)/half-life)

Target and lower bound do not go below it. It is kept in an annotation of the checkpoint. Off by default.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Floor:
    """Memory that was found necessary at a time."""

    memory_bytes: float
    at: datetime

    def now(self, now: datetime, half_life: timedelta) -> float:
        """Return what is left of it."""
        age: float = max(now - self.at, timedelta(0)) / half_life
        return self.memory_bytes * math.exp2(-age)


def raised(old: Floor | None, needed: float, *, at: datetime, half_life: timedelta) -> Floor:
    """Return the floor after a kill that asked for `needed` bytes."""
    left = old.now(at, half_life) if old is not None else 0.0
    return Floor(max(left, needed), at)


def floor_text(floor: Floor) -> str:
    """Return the annotation value."""
    return f"{int(floor.memory_bytes)}@{floor.at.isoformat()}"


def read_floor(text: str) -> Floor | None:
    """Return the floor of an annotation, or None when there is none that can be read."""
    amount, separator, at = text.partition("@")
    try:
        when = datetime.fromisoformat(at)
        return Floor(float(amount), when) if separator and when.tzinfo is not None and float(amount) >= 0 else None
    except ValueError:
        return None
