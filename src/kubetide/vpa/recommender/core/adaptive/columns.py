"""Learned numbers by container: named arrays with one column each.

A column is a fixed count of floats, so what is remembered of a container does not grow with its age. NaN stands for a
sample that was never taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats, Ints

NO_SAMPLE: Final = float("nan")
_PART: Final = 4096
"""Containers that are computed at once: what is computed of a fleet needs several times the room of what is kept."""


class FleetColumns:
    """Arrays of `rows[name]` rows and one column per container."""

    def __init__(self, size: int, rows: Mapping[str, int], *, empty: Mapping[str, float] | None = None) -> None:
        self.size = size
        self._empty = dict(empty or {})
        self._arrays: dict[str, Floats] = {
            name: np.full((count, size), self._empty.get(name, 0.0)) for name, count in rows.items()
        }

    def __getitem__(self, name: str) -> Floats:
        return self._arrays[name]

    def __setitem__(self, name: str, values: Floats) -> None:
        self._arrays[name][...] = values

    @property
    def height(self) -> int:
        """Return how many numbers a column has."""
        return sum(len(array) for array in self._arrays.values())

    def clear(self) -> None:
        """Make all columns empty."""
        for name, array in self._arrays.items():
            array.fill(self._empty.get(name, 0.0))

    def rearrange(self, source: Ints) -> None:
        """Make column `i` what column `source[i]` was; -1 is an empty one."""
        fresh, known = source < 0, np.maximum(source, 0)
        for name, array in self._arrays.items():
            empty = self._empty.get(name, 0.0)
            taken = array[:, known] if self.size else np.full((len(array), source.size), empty)
            taken[:, fresh] = empty
            self._arrays[name] = taken
        self.size = source.size

    def save(self, column: int) -> Floats:
        """Return the numbers of one column, one array after the other."""
        return np.concatenate([array[:, column] for array in self._arrays.values()])

    def load(self, column: int, numbers: Floats) -> None:
        """Fill one column with what `save` returned."""
        at = 0
        for array in self._arrays.values():
            array[:, column] = numbers[at : at + len(array)]
            at += len(array)


def parts(size: int) -> Iterator[slice]:
    """Yield the columns of a fleet, some at a time.

    A last one goes with those before it: NumPy adds up the rows of a single column in another order.
    """
    start = 0
    while start < size:
        end = start + _PART if size - start > _PART + 1 else size
        yield slice(start, end)
        start = end


def save_all(parts: Iterable[FleetColumns], column: int) -> Floats:
    """Return the numbers of one column of several tables."""
    return np.concatenate([columns.save(column) for columns in parts])


def load_all(parts: Iterable[FleetColumns], column: int, numbers: Floats) -> None:
    """Fill one column of several tables; numbers that do not fit are refused as a whole."""
    tables = list(parts)
    wanted = sum(columns.height for columns in tables)
    if numbers.size != wanted:
        raise InvalidInput(f"holds {numbers.size} numbers instead of {wanted}", subject="adaptive state")
    if np.isinf(numbers).any():
        raise InvalidInput("contains a non-finite number", subject="adaptive state")
    at = 0
    for columns in tables:
        columns.load(column, numbers[at : at + columns.height])
        at += columns.height
