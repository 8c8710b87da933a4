"""How a limit of the whole cluster is shared: as slots that replicas own one by one, the way they own ranges.

    slots        as many as the scarcest limit has units (a budget of 60 a minute with a burst of 10: ten slots)
    owner        each member has as many as any other, give or take one; which ones, by rendezvous hashing, so that few
                 change hands when a member joins or leaves
    turns        with more members than slots they take turns, numbered by all of them together: the highest number
                 that anybody announces counts
    share        a member with s of n slots keeps x * s // n of a limit x: in sum never more than x

In the claims of a Lease slots are the numbers from `RANGES` on.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kubetide.kube.control.core.ranges import RANGES, weight

MOST_SLOTS = 256
TURN_SECONDS = 180.0
"""How long members without a slot wait for their turn."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a limit that a replica may use."""

    slots: int
    of: int
    opens_in: float | None = None
    """Seconds until one more slot may be used; None when there is none to wait for."""


WHOLE = Share(1, 1)


def slot_owners(members: Collection[str], slots: int, *, turn: int = 0) -> tuple[str, ...]:
    """Return the member that each slot should belong to; nobody's are all without members."""
    ordered = sorted(set(members))
    if not ordered:
        return ("",) * slots
    if len(ordered) > slots:
        return tuple(ordered[(turn * slots + number) % len(ordered)] for number in range(slots))
    fair, extra = divmod(slots, len(ordered))
    owned = dict.fromkeys(ordered, 0)
    found = []
    for number in range(slots):
        # Who has his fair part may have one more, as long as there is one over.
        open_to = [name for name in ordered if owned[name] < fair or (owned[name] == fair and extra)]
        chosen = max(open_to, key=lambda name: (weight(name, RANGES + number), name))
        extra -= owned[chosen] == fair
        owned[chosen] += 1
        found.append(chosen)
    return tuple(found)
