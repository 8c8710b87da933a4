"""CPU lists of Linux (`0-3,8`) as values: parse, format, set algebra.

The text is a comma separated list of ids and closed ranges. Empty text is the empty set, a range that runs backwards
adds nothing, white space is refused. A range may not end above 4096 (a typing error would otherwise allocate memory
without bound); a single id only has to fit 32 bits. The canonical text is ascending with neighbours merged.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kubetide.errors import InvalidInput

_NUMBER = re.compile(r"[+]?[0-9]+", re.ASCII)
_LONGEST_NUMBER = 100
_RANGE_LIMIT = 4096
_ID_LIMIT = 2**31 - 1


class CpuSetError(InvalidInput):
    """A text is not a Linux CPU list."""


@dataclass(frozen=True, slots=True)
class CpuSet:
    """An immutable set of logical CPU ids."""

    ids: frozenset[int] = frozenset()

    @staticmethod
    def of(ids: Iterable[int]) -> "CpuSet":
        """Return the set of `ids`."""
        return CpuSet(frozenset(ids))

    @staticmethod
    def parse(text: str) -> "CpuSet":
        """Parse a CPU list; raise CpuSetError if it is not one."""
        if text == "":
            return CpuSet()
        ids: set[int] = set()
        for item in text.split(","):
            ends = item.split("-")
            if len(ends) > 2:
                raise CpuSetError(f"{item!r} in CPU list {text!r} has more than one dash")
            first = _number(ends[0], text)
            if len(ends) == 1:
                ids.add(first)
                continue
            last = _number(ends[1], text)
            if last > _RANGE_LIMIT:
                raise CpuSetError(f"range {item!r} in CPU list {text!r} ends above {_RANGE_LIMIT}")
            ids.update(range(first, last + 1))
        return CpuSet(frozenset(ids))

    def __str__(self) -> str:
        parts: list[str] = []
        ordered = sorted(self.ids)
        start = 0
        for position, cpu in enumerate(ordered):
            if position + 1 < len(ordered) and ordered[position + 1] == cpu + 1:
                continue
            parts.append(str(cpu) if start == position else f"{ordered[start]}-{cpu}")
            start = position + 1
        return ",".join(parts)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, cpu: object) -> bool:
        return cpu in self.ids

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids | other.ids)

    def __and__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids & other.ids)

    def __sub__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids - other.ids)

    def __le__(self, other: "CpuSet") -> bool:
        return self.ids <= other.ids


def _number(text: str, whole: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise CpuSetError(f"{text!r} in CPU list {whole!r} is not a CPU id")
    if len(text) > _LONGEST_NUMBER or (number := int(text)) > _ID_LIMIT:
        raise CpuSetError(f"{text[:_LONGEST_NUMBER]!r} in a CPU list is too large")
    return number


def same_cpus(left: str, right: str) -> bool:
    """Return whether two texts are CPU lists of the same set."""
    try:
        return CpuSet.parse(left) == CpuSet.parse(right)
    except CpuSetError:
        return False
