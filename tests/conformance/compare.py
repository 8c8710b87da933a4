"""Deep comparison of expected and actual values, by the rules that the golden collections state.

`differences(expected, actual, …)` yields one line per difference, with its path. Options:

- `relative`: tolerance for floats (integers are exact);
- `quantities`: names of members whose text is a quantity, compared by value; `True` compares any two texts (or
  numbers) that both parse as quantities by value;
- `drop_empty`: remove members that are null, "", [] or {} on both sides first;
- `sets`: names of list members whose order does not matter;
- `extra`: also report members that only the actual value has (default: yes).
"""

import math
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError


def differences(
    expected: Any,
    actual: Any,
    *,
    relative: float = 1e-9,
    quantities: Collection[str] | bool = (),
    drop_empty: bool = False,
    sets: Collection[str] = (),
    extra: bool = True,
    path: str = "",
) -> Iterator[str]:
    """Yield what differs, one line each."""
    if drop_empty:
        expected, actual = without_empty(plain(expected)), without_empty(plain(actual))
    else:
        expected, actual = plain(expected), plain(actual)
    yield from _compare(expected, actual, path, "", relative, quantities, frozenset(sets), extra)


def plain(value: Any) -> Any:
    """Turn structs and tuples into dicts and lists."""
    return _lists(msgspec.to_builtins(value, enc_hook=str))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(inner) for inner in value]
    return value


def without_empty(value: Any) -> Any:
    """Drop members that are null, "", [] or {}, from the inside out."""
    if isinstance(value, dict):
        kept = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if not _is_empty(inner)}
    if isinstance(value, list):
        return [without_empty(inner) for inner in value]
    return value


def same_quantity(one: Any, other: Any) -> bool | None:
    """Compare two quantities by value; None if one of them is none."""
    try:
        return parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _compare(
    expected: Any,
    actual: Any,
    path: str,
    name: str,
    relative: float,
    quantities: Collection[str] | bool,
    sets: frozenset[str],
    extra: bool,
) -> Iterator[str]:
    here = path or "value"
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected:
            if key not in actual:
                yield f"{here}.{key}: expected {_short(expected[key])}, got nothing"
            else:
                yield from _compare(expected[key], actual[key], f"{path}.{key}", key, relative, quantities, sets, extra)
        if extra:
            for key in actual.keys() - expected.keys():
                yield f"{here}.{key}: expected nothing, got {_short(actual[key])}"
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _compare_lists(expected, actual, path, name, relative, quantities, sets, extra)
    elif not _same(expected, actual, name, relative, quantities):
        yield f"{here}: expected {_short(expected)}, got {_short(actual)}"


def _compare_lists(
    expected: list[Any],
    actual: list[Any],
    path: str,
    name: str,
    relative: float,
    quantities: Collection[str] | bool,
    sets: frozenset[str],
    extra: bool,
) -> Iterator[str]:
    here = path or "value"
    if len(expected) != len(actual):
        yield f"{here}: expected {len(expected)} items {_short(expected)}, got {len(actual)} {_short(actual)}"
        return
    if name in sets:
        left = list(actual)
        for item in expected:
            for index, candidate in enumerate(left):
                if not any(_compare(item, candidate, path, "", relative, quantities, sets, extra)):
                    del left[index]
                    break
            else:
                yield f"{here}: expected {_short(item)} in the set, got {_short(left)}"
        return
    for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
        yield from _compare(one, other, f"{path}[{index}]", name, relative, quantities, sets, extra)


def _same(expected: Any, actual: Any, name: str, relative: float, quantities: Collection[str] | bool) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return expected == actual or math.isclose(expected, actual, rel_tol=relative, abs_tol=1e-300)
    if expected == actual:
        return True
    if quantities is True or (quantities and name in quantities):
        return same_quantity(expected, actual) is True
    return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}…"
