"""Who may work on which ranges: the rule of the members' Leases, as pure functions of what was read and when.

Each member has a Lease of its own, which names the ranges that it claims. No two members may ever own a range:

    claim   what this member should own and no other member that is alive claims, it writes into its Lease
    take    what its Lease claims, it takes once all Leases, read after that write, show no other live claim.
            Of two that claim a range, the later one sees the earlier claim; who should not own it withdraws
    renew   a renewal counts only if its answer came before the deadline of the one before. Else everything is lost:
            others may have judged this member dead in between
    give up what another should own is given up once the work on it has ended: it leaves the claim
    alive   a Lease whose state changed within its duration and an allowance for clocks that do not run alike, by our
            own steady clock since that state was first seen. The times written in it are never compared: the clocks of
            two machines need not agree

What cannot be read is not empty: a live Lease with an unreadable claim claims everything. Slots of a shared limit
(`slots`) are claimed, taken and given up in the same way, as numbers after the ranges.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kubetide.errors import InvalidInput
from kubetide.kube.control.core.ranges import ALL_RANGES, NO_RANGES, RANGES, owners, parse_ranges, ranges_text
from kubetide.kube.control.core.slots import slot_owners

DRIFT_SECONDS = 1.0
"""By how much two steady clocks may differ over the duration of a Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The Lease of a member in one state, and when that state was first seen (seconds of our own steady clock)."""

    lease: str
    """The name of the Lease, and of the member."""
    version: str
    claims: frozenset[int]
    duration: float
    seen_at: float
    left: bool = False
    """It said that it leaves, and owns nothing any more."""
    turn: int = 0
    """The turn that it counts, where members take turns with slots."""

    def alive(self, now: float) -> bool:
        """Return whether the member may own what it claims."""
        return not self.left and now < self.seen_at + self.duration + DRIFT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a member should do about ranges."""

    wanted: frozenset[int]
    """The ranges it should own."""
    free: frozenset[int]
    """Those of them that no other live member claims."""
    live: int
    """Members that are alive, itself included."""
    turn: int = 0
    """The highest turn that any of the others counts."""


def see(before: Collection[Member], now_listed: Iterable[Member], *, now: float) -> tuple[Member, ...]:
    """Return the members after all Leases were read.

    The same state keeps the time it was first seen. A Lease that is gone though nobody said so counts until it would
    have run out.
    """
    known = {member.lease: member for member in before}
    found: dict[str, Member] = {}
    for member in now_listed:
        previous = known.get(member.lease)
        found[member.lease] = previous if previous is not None and previous.version == member.version else member
    gone = [one for one in before if one.lease not in found and one.alive(now)]
    return (*found.values(), *gone)


def shares(me: str, members: Collection[Member], *, now: float, slots: int = 0, turn: int = 0) -> Shares:
    """Return what this member should own, and what of it is free; `turn` is the one that it counts itself."""
    others = [one for one in members if one.lease != me and one.alive(now)]
    names = [me, *(one.lease for one in others)]
    told = max((one.turn for one in others), default=0)
    by_number = owners(names) + slot_owners(names, slots, turn=max(turn, told))
    wanted = frozenset(number for number, owner in enumerate(by_number) if owner == me)
    free = wanted.difference(*(one.claims for one in others))
    return Shares(wanted=wanted, free=free, live=len(names), turn=told)


def claims_of(text: str, *, left: bool, slots: str | None = None) -> frozenset[int]:
    """Return what a Lease claims: ranges, and slots where it names any."""
    if left:
        return NO_RANGES
    return _numbers(text) | (frozenset() if slots is None else _after_ranges(_numbers(slots)))


def claims_texts(claims: Collection[int]) -> tuple[str, str]:
    """Return the ranges and the slots of a claim as they are written down."""
    return (
        ranges_text([number for number in claims if number < RANGES]),
        ranges_text([number - RANGES for number in claims if number >= RANGES]),
    )


def _after_ranges(slots: frozenset[int]) -> frozenset[int]:
    return frozenset(RANGES + number for number in slots)


def _numbers(text: str) -> frozenset[int]:
    try:
        return parse_ranges(text)
    except InvalidInput:
        return ALL_RANGES
