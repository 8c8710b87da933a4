"""Distrust after OOM kills: it grows fast and fades slowly.

An OOM kill proves that what was learned of a container was wrong. Each adds 1, up to 4, and half of it is gone after
two weeks. While it is above a half, memory stays at least what OOM kills showed to be needed; and as long as there is
any, kills are priced higher for that container.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns

Mask = npt.NDArray[np.bool_]

MOST: Final = 4.0
_KEEP: Final = 0.998
"""What an hour leaves of it."""
_HOLDS: Final = 0.5
_CAUTION: Final = 0.25


class Distrust:
    """How far the memory learned of each container is distrusted."""

    def __init__(self, size: int) -> None:
        self.columns = FleetColumns(size, {"distrust": 1, "needed": 1})

    def add_oom(self, column: int, needed: float) -> None:
        """Take in an OOM kill, with the memory that the container is taken to need."""
        own = self.columns
        own["distrust"][0, column] = min(own["distrust"][0, column] + 1.0, MOST)
        own["needed"][0, column] = max(own["needed"][0, column], needed) if self._holds()[column] else needed

    def fade(self) -> None:
        """Let an hour pass."""
        self.columns["distrust"] *= _KEEP

    def caution(self) -> Floats:
        """Return what the price of an OOM kill, or a shared request, is multiplied with; 1 without distrust."""
        caution: Floats = 1.0 + _CAUTION * self.columns["distrust"][0]
        return caution

    def floor(self) -> Floats:
        """Return the memory that OOM kills have shown to be needed, in bytes; 0 where none counts any more."""
        floor: Floats = np.where(self._holds(), self.columns["needed"][0], 0.0)
        return floor

    def _holds(self) -> Mask:
        holds: Mask = self.columns["distrust"][0] > _HOLDS
        return holds
