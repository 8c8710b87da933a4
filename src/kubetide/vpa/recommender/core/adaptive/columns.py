"""Learned numbers by container: named arrays with one column each, and the checkpoint form of a column.

A column is a fixed count of floats, so what is remembered of a container does not grow with its age. `None` in the
form stands for NaN, a sample that was never taken.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats

Form = dict[str, list[float | None]]
NO_SAMPLE: Final = float("nan")


class FleetColumns:
    """Arrays of `rows[name]` rows and one column per container."""

    def __init__(self, size: int, rows: Mapping[str, int], *, empty: Mapping[str, float] | None = None) -> None:
        self.size = size
        fill = empty or {}
        self._arrays: dict[str, Floats] = {
            name: np.full((count, size), fill.get(name, 0.0)) for name, count in rows.items()
        }

    def __getitem__(self, name: str) -> Floats:
        return self._arrays[name]

    def __setitem__(self, name: str, values: Floats) -> None:
        self._arrays[name][...] = values

    def save(self, column: int) -> Form:
        """Return the checkpoint form of one column."""
        return {
            name: [None if np.isnan(value) else float(value) for value in array[:, column]]
            for name, array in self._arrays.items()
        }

    def load(self, column: int, form: Mapping[str, object]) -> None:
        """Fill one column from its checkpoint form; a form that does not fit is refused as a whole."""
        parsed = {name: _parsed(name, form.get(name), len(array)) for name, array in self._arrays.items()}
        for name, values in parsed.items():
            self._arrays[name][:, column] = values


def _parsed(name: str, values: object, count: int) -> Floats:
    if not isinstance(values, list) or len(values) != count:
        raise InvalidInput(f"must be a list of {count} numbers", subject="adaptive checkpoint", field=name)
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidInput("contains something that is not a number", subject="adaptive checkpoint", field=name)
    parsed = np.array([NO_SAMPLE if value is None else float(value) for value in values])
    if np.isinf(parsed).any():
        raise InvalidInput("contains a non-finite number", subject="adaptive checkpoint", field=name)
    return parsed
