"""How the vertical and the horizontal side of a workload agree on one plan: what a VPA's annotation says.

The recommender writes it (`kubetide.io/coordination`), for itself after a restart and for the horizontal autoscaler,
which keeps as many pods as are announced there. Amounts are millicores by container, times seconds since 1970.
"""

from typing import Final

import msgspec

from kubetide.api.values.codec import decode
from kubetide.errors import InvalidInput

COORDINATION_ANNOTATION: Final = "kubetide.io/coordination"
CONFLICTS_ANNOTATION: Final = "kubetide.io/hpa-conflicts"
"""ignore, report, avoid or coordinate, for one VPA."""
HPA_CONFLICT: Final = "HPAConflict"
COORDINATED: Final = "Coordinated"
"""Reason of the condition HPAConflict when it is False: both sides follow one plan."""


ANNOUNCEMENT_SECONDS: Final = 7200
"""How long an announcement counts. It is fulfilled or withdrawn long before, unless whoever made it is gone."""


class CoordinationNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation."""

    sizes: dict[str, int]
    """What containers are to request."""
    planned: dict[str, int] = {}
    """Smaller sizes that are announced: pods shrink once there are enough of them."""
    count: int = 0
    """How many smaller pods the demand takes, until all pods have their new size."""
    moved: int = 0
    announced: int = 0
    since: int = 0
    """When demand was seen first."""
    seen: int = 0
    peaks: tuple[int | None, ...] = ()
    """The highest demand of each hour of the day (UTC)."""


def read_note(text: str) -> CoordinationNote:
    """Read the annotation; raises InvalidInput, which names it."""
    found = decode(text, CoordinationNote, what=f"annotation {COORDINATION_ANNOTATION}")
    amounts = (*found.sizes.values(), *found.planned.values(), *(peak or 0 for peak in found.peaks), found.count)
    if min(amounts, default=0) < 0 or len(found.peaks) not in (0, 24):
        raise InvalidInput("amounts are negative, or there are not 24 hours", subject=COORDINATION_ANNOTATION)
    return found


def note_text(note: CoordinationNote) -> str:
    """Return the annotation as text."""
    return msgspec.json.encode(note).decode()
