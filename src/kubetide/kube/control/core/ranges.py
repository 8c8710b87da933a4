"""Which part of the cluster belongs to which replica: 256 fixed ranges of namespaces, shared by rendezvous hashing.

    range of a namespace   the first byte of the FNV-1a hash of its name, so that a set of ranges is a shard selector of
                           the API server
    range of a node        the same of its own name; the API server cannot filter by that, so replicas do
    in a split namespace   each object is in the range of its own uid, and the namespace in none: everybody who owns a
                           range reads the whole namespace
    owner of a range       the member with the highest weight for it, a hash of its identity and the range's number

Every process computes the same owners from the same members. A member that joins takes ranges from all others and
moves nothing between them; one that leaves hands its ranges to the others and moves nothing else.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b

from kubetide.api.values.shard_selector import HASHES, NAMESPACE, ShardRange, ShardSelector, shard_hash
from kubetide.errors import InvalidInput, SettingsError

RANGES = 256
ALL_RANGES = frozenset(range(RANGES))
NO_RANGES: frozenset[int] = frozenset()
_WIDTH = HASHES // RANGES
_DIGITS = RANGES // 4


class ShardMode(StrEnum):
    """How replicas of a component divide the work."""

    OFF = "off"
    AUTO = "auto"


def refuse_beside_auto(mode: ShardMode, given: Mapping[str, bool], *, field: str) -> None:
    """Raise SettingsError for what cannot stand beside replicas that share the work, by its flag."""
    for other, is_given in given.items():
        if is_given and mode is ShardMode.AUTO:
            raise SettingsError(f"auto and {other} exclude each other", field=field)


@lru_cache(maxsize=65536)
def range_of(name: str) -> int:
    """Return the range that a namespace is in, or a node."""
    return shard_hash(name) // _WIDTH


@dataclass(frozen=True, slots=True)
class Division:
    """How objects are divided into ranges: by their namespace, or node, and in `split` namespaces by their own uid."""

    field: str = NAMESPACE
    split: frozenset[str] = frozenset()

    def range_of(self, name: str, uid: str = "") -> int:
        """Return the range of an object in a namespace, or of a node."""
        return range_of(uid if name in self.split else name)

    def selector(self, ranges: Collection[int]) -> ShardSelector:
        """Return what the owner of some ranges reads: what is in them, and of split namespaces everything."""
        wanted = selector_of(ranges, self.field)
        hashes = sorted(shard_hash(name) for name in self.split if ranges and range_of(name) not in ranges)
        return ShardSelector((*wanted.ranges, *(ShardRange(self.field, one, one + 1) for one in hashes)))


WHOLE_NAMESPACES = Division()


def selector_of(ranges: Collection[int], field: str = NAMESPACE) -> ShardSelector:
    """Return the shard selector of some ranges, neighbours joined; without ranges it matches nothing."""
    joined: list[tuple[int, int]] = []
    for number in sorted(ranges):
        if joined and joined[-1][1] == number:
            joined[-1] = (joined[-1][0], number + 1)
        else:
            joined.append((number, number + 1))
    return ShardSelector(tuple(ShardRange(field, start * _WIDTH, end * _WIDTH) for start, end in joined))


def owners(members: Collection[str]) -> tuple[str, ...]:
    """Return the member that each range should belong to; nobody's are all without members."""
    return _owners(tuple(sorted(set(members))))


@lru_cache(maxsize=16)
def _owners(ordered: tuple[str, ...]) -> tuple[str, ...]:
    if not ordered:
        return ("",) * RANGES
    weights = [(_weights(member), member) for member in ordered]
    return tuple(max((weighed[number], member) for weighed, member in weights)[1] for number in range(RANGES))


@lru_cache(maxsize=1024)
def _weights(member: str) -> tuple[bytes, ...]:
    return tuple(weight(member, number) for number in range(RANGES))


def weight(member: str, number: int) -> bytes:
    """Return how strongly a member is drawn to a number."""
    return blake2b(f"{member}/{number}".encode(), digest_size=8).digest()


def ranges_text(ranges: Collection[int]) -> str:
    """Return ranges as 64 hexadecimal digits, the lowest bit for range 0."""
    return f"{sum(1 << number for number in ranges):0{_DIGITS}x}"


def parse_ranges(text: str) -> frozenset[int]:
    """Read ranges from 64 hexadecimal digits."""
    if len(text) != _DIGITS or not all(digit in "0123456789abcdef" for digit in text):
        raise InvalidInput(f"{text[:80]!r} is not a set of ranges: {_DIGITS} hexadecimal digits")
    bits = int(text, 16)
    return frozenset(number for number in range(RANGES) if bits >> number & 1)
