"""Labels and selectors as indexes: who selects an object, and what a selector selects, without trying every pair.

A selector that asks for one value of a label can only match what has that label, so it is filed under the rarest such
pair it has; the others are tried one by one. Answers keep the order in which things were given.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kubetide.api.objects.meta import HasMetadata
from kubetide.api.values.selectors import Operator, Selector

T = TypeVar("T")
M = TypeVar("M", bound=HasMetadata)
Pair = tuple[str, str]
"""A label and its value."""

_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)


def _pairs(selector: Selector) -> list[Pair]:
    """Return the labels that everything a selector matches has."""
    return [
        (one.key, one.values[0]) for one in selector.requirements if one.operator in _ONE_OF and len(one.values) == 1
    ]


class Selecting(Generic[T]):
    """Things with a selector, found by the labels that it matches."""

    def __init__(self, given: Iterable[tuple[T, Selector]]) -> None:
        self._given = [(thing, selector) for thing, selector in given if not selector.nothing]
        often = Counter(pair for _, selector in self._given for pair in _pairs(selector))
        self._filed: dict[Pair, list[int]] = {}
        self._others: list[int] = []
        for place, (_, selector) in enumerate(self._given):
            rarest = min(_pairs(selector), key=lambda pair: often[pair], default=None)
            (self._others if rarest is None else self._filed.setdefault(rarest, [])).append(place)

    def those(self, labels: Mapping[str, str] | None) -> list[T]:
        """Return the things whose selector matches these labels."""
        has = labels or {}
        places = [place for pair in has.items() for place in self._filed.get(pair, ())]
        return [
            self._given[place][0] for place in sorted([*places, *self._others]) if self._given[place][1].matches(has)
        ]


class Labelled(Generic[M]):
    """Objects with labels, found by a selector."""

    def __init__(self, given: Sequence[M]) -> None:
        self._given = given
        self._having: dict[Pair, list[M]] = {}
        for item in given:
            for pair in (item.metadata.labels or {}).items():
                self._having.setdefault(pair, []).append(item)

    def those(self, selector: Selector) -> list[M]:
        """Return the objects that a selector matches."""
        if selector.nothing:
            return []
        filed = [self._having.get(pair, []) for pair in _pairs(selector)]
        return [item for item in min(filed, key=len, default=self._given) if selector.matches(item.metadata.labels)]
