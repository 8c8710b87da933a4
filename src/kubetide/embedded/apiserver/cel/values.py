"""The operators and functions of CEL on plain values: texts, numbers, lists and maps.

Integers have 64 bits. What makes or walks through something large spends steps for its size before it begins, so
that a short expression cannot double a value until the memory is full.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from kubetide.embedded.apiserver.validation.budget import WorkBudget
from kubetide.embedded.apiserver.validation.patterns import compile_pattern
from kubetide.errors import InvalidInput

_SIZE_PER_STEP = 16
"""Characters or items that are copied or looked through in one step."""
_MATCHED_PER_STEP = 128
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class CelError(InvalidInput):
    """An expression cannot be parsed or evaluated."""


def boolean(value: Any) -> bool:
    """Return a boolean, or refuse what is none."""
    if not isinstance(value, bool):
        raise CelError(f"no such overload: {_kind(value)} is not a boolean")
    return value


def negative(value: Any) -> Any:
    """Return -value."""
    return _number(-_operand(value))


def binary(operator: str, left: Any, right: Any, budget: WorkBudget) -> Any:
    """Return the value of an operator with two operands."""
    match operator:
        case "==":
            return same(left, right, budget)
        case "!=":
            return not same(left, right, budget)
        case "in":
            return _contains(right, left, budget)
        case "<" | "<=" | ">" | ">=":
            return _compare(operator, left, right, budget)
        case "+" if _are(str, left, right) or _are(list, left, right):
            budget.spend((len(left) + len(right)) // _SIZE_PER_STEP)
            return left + right
    return _calculate(operator, _operand(left), _operand(right))


def call(name: str, values: list[Any], budget: WorkBudget) -> Any:
    """Return the value of a function; the target of a method is its first argument."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise CelError(f"no such function: {name}")
    for value in values:
        budget.spend(_size(value) // _SIZE_PER_STEP)
    return function(budget, *values)


def same(left: Any, right: Any, budget: WorkBudget) -> bool:
    """Compare as CEL does: true is not 1. Every pair of values inside takes two steps."""
    budget.spend(2)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair, budget) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        if len(left) != len(right):
            return False
        return all(key in right and same(value, right[key], budget) for key, value in left.items())
    if isinstance(left, str) and isinstance(right, str):
        budget.spend(min(len(left), len(right)) // _SIZE_PER_STEP)
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _contains(holder: Any, wanted: Any, budget: WorkBudget) -> bool:
    if isinstance(holder, dict):
        return wanted in holder
    if not isinstance(holder, list):
        raise CelError(f"no such overload: in {_kind(holder)}")
    return any(same(item, wanted, budget) for item in holder)


def _compare(operator: str, left: Any, right: Any, budget: WorkBudget) -> bool:
    _check_ordered(left, right)
    budget.spend(min(_size(left), _size(right)) // _SIZE_PER_STEP)
    match operator:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def _check_ordered(left: Any, right: Any) -> None:
    """Lists and maps have no order, and texts none with numbers."""
    if not (_are(str, left, right) or _are((int, float), left, right)):
        raise CelError(f"no such overload: {_kind(left)} and {_kind(right)} have no order")


def _calculate(operator: str, left: Any, right: Any) -> Any:
    match operator:
        case "+":
            return _number(left + right)
        case "-":
            return _number(left - right)
        case "*":
            return _number(left * right)
        case "/":
            return _number(_divide(left, right))
    return _number(left - right * _divide(left, right))


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _operand(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CelError(f"no such overload: {_kind(value)} is not a number")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        raise CelError("integer overflow")
    return value


def _are(kind: type | tuple[type, ...], left: Any, right: Any) -> bool:
    return isinstance(left, kind) and isinstance(right, kind)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, list, dict)) else 0


def _kind(value: Any) -> str:
    return type(value).__name__


def _matches(budget: WorkBudget, text: str, pattern: str) -> bool:
    compiled = compile_pattern(pattern)
    budget.spend(compiled.cost(text) // _MATCHED_PER_STEP)
    return compiled.found_in(text)


def _join(budget: WorkBudget, items: list[str], separator: str = "") -> str:
    budget.spend(sum(len(item) + len(separator) for item in items) // _SIZE_PER_STEP)
    return separator.join(items)


def _replace(budget: WorkBudget, text: str, old: str, new: str) -> str:
    _check_texts(text, old, new)
    budget.spend(text.count(old) * len(new) // _SIZE_PER_STEP)
    return text.replace(old, new)


def _contains_text(budget: WorkBudget, text: str, part: str) -> bool:
    _check_texts(text, part)
    return part in text


def _check_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise CelError(f"no such overload: {_kind(value)} is not a string")


def _string(budget: WorkBudget, value: Any) -> str:
    if isinstance(value, (list, dict)) or value is None:
        raise CelError(f"no such overload: string({_kind(value)})")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(budget: WorkBudget, items: list[Any]) -> Any:
        for item in items:
            _check_ordered(items[0], item)
            budget.spend(_size(item) // _SIZE_PER_STEP)
        return pick(items)

    return extreme


def _is_sorted(budget: WorkBudget, items: list[Any]) -> bool:
    return all(_compare("<=", one, next_one, budget) for one, next_one in pairwise(items))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": lambda budget, value: len(value),
    "startsWith": lambda budget, text, prefix: text.startswith(prefix),
    "endsWith": lambda budget, text, suffix: text.endswith(suffix),
    "contains": _contains_text,
    "matches": _matches,
    "lowerAscii": lambda budget, text: text.lower(),
    "upperAscii": lambda budget, text: text.upper(),
    "trim": lambda budget, text: text.strip(),
    "split": lambda budget, text, separator: text.split(separator) if separator else list(text),
    "join": _join,
    "replace": _replace,
    "indexOf": lambda budget, text, part: text.find(part),
    "substring": lambda budget, text, start, end=None: text[start:end],
    "string": _string,
    "int": lambda budget, value: _number(int(value)),
    "double": lambda budget, value: float(value),
    "sum": lambda budget, items: _number(sum(map(_operand, items))),
    "min": _extreme(min),
    "max": _extreme(max),
    "isSorted": _is_sorted,
    "type": lambda budget, value: _kind(value),
}
