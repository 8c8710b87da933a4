"""Evaluates CEL expressions, as far as CRD rules and webhook conditions use the language.

Literals, members, indexes, arithmetic, comparison, `in`, `&&`, `||`, `?:`, the macros `has`, `all`, `exists`,
`exists_one`, `filter` and `map`, and the usual functions on texts, lists and maps. `&&` and `||` forgive an error on
one side if the other side decides. An expression may take a bounded number of steps.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from kubetide.embedded.cel_syntax import Node, parse
from kubetide.errors import InvalidInput

_MAX_STEPS = 100_000


class CelError(InvalidInput):
    """An expression cannot be parsed or evaluated."""


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression."""
    try:
        return _Run(variables).value(_parsed(expression))
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, re.error, RecursionError) as error:
        raise CelError(f"{expression!r}: {error}") from error


def mentions(expression: str, name: str) -> bool:
    """Whether an expression uses a variable."""
    return _mentions(_parsed(expression), name)


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> Node:
    try:
        return parse(expression)
    except (ValueError, RecursionError) as error:
        raise CelError(f"{expression!r}: {error}") from error


def _mentions(node: Node, name: str) -> bool:
    if node[0] == "name":
        return bool(node[1] == name)
    return any(isinstance(part, tuple) and _mentions(part, name) for part in node[1:]) or any(
        isinstance(part, list) and any(_mentions(item, name) for item in part if isinstance(item, tuple))
        for part in node[1:]
    )


@dataclass(slots=True)
class _Run:
    variables: Mapping[str, Any]
    steps: int = 0

    def value(self, node: Node) -> Any:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise CelError("the expression takes too many steps")
        kind = node[0]
        match kind:
            case "literal":
                return node[1]
            case "name":
                if node[1] not in self.variables:
                    raise CelError(f"undeclared reference to {node[1]!r}")
                return self.variables[node[1]]
            case "member":
                return self._member(node)
            case "index":
                return self._index(self.value(node[1]), self.value(node[2]))
            case "list":
                return [self.value(item) for item in node[1]]
            case "map":
                return {self.value(key): self.value(value) for key, value in node[1]}
            case "not":
                return not _boolean(self.value(node[1]))
            case "negative":
                return -self.value(node[1])
            case "choose":
                return self.value(node[2] if _boolean(self.value(node[1])) else node[3])
            case "and" | "or":
                return self._logic(node)
            case "binary":
                return _binary(node[1], self.value(node[2]), self.value(node[3]))
        return self._call(node)

    def _member(self, node: Node) -> Any:
        holder = self.value(node[1])
        if not isinstance(holder, dict) or node[2] not in holder:
            raise CelError(f"no such key: {node[2]}")
        return holder[node[2]]

    @staticmethod
    def _index(holder: Any, key: Any) -> Any:
        if isinstance(holder, dict):
            if key not in holder:
                raise CelError(f"no such key: {key}")
            return holder[key]
        if isinstance(holder, list) and isinstance(key, int) and 0 <= key < len(holder):
            return holder[key]
        raise CelError(f"no such index: {key}")

    def _logic(self, node: Node) -> bool:
        decisive = node[0] == "or"
        trouble: CelError | None = None
        for side in (node[1], node[2]):
            try:
                if _boolean(self.value(side)) is decisive:
                    return decisive
            except CelError as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return not decisive

    def _call(self, node: Node) -> Any:
        _, name, target, arguments = node
        if name == "has" and target is None:
            inner = arguments[0]
            if inner[0] != "member":
                raise CelError("has() takes a member")
            holder = self.value(inner[1])
            return isinstance(holder, dict) and holder.get(inner[2]) is not None
        if target is not None and name in ("all", "exists", "exists_one", "filter", "map"):
            return self._macro(name, self.value(target), arguments)
        values = [self.value(item) for item in arguments]
        if target is not None:
            values.insert(0, self.value(target))
        function = _FUNCTIONS.get(name)
        if function is None:
            raise CelError(f"no such function: {name}")
        return function(*values)

    def _macro(self, name: str, holder: Any, arguments: list[Node]) -> Any:
        items = list(holder)
        variable = arguments[0][1]

        def inside(item: Any, body: Node) -> Any:
            run = _Run({**self.variables, variable: item}, self.steps)
            value = run.value(body)
            self.steps = run.steps
            return value

        body = arguments[-1]
        if name == "map":
            kept = items if len(arguments) == 2 else [i for i in items if _boolean(inside(i, arguments[1]))]
            return [inside(item, body) for item in kept]
        found = [item for item in items if _boolean(inside(item, body))]
        match name:
            case "all":
                return len(found) == len(items)
            case "exists":
                return bool(found)
            case "exists_one":
                return len(found) == 1
        return found


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: {value!r} is not a boolean")
    return value


def _binary(operator: str, left: Any, right: Any) -> Any:
    match operator:
        case "==":
            return _same(left, right)
        case "!=":
            return not _same(left, right)
        case "in":
            return left in right
        case "+":
            if type(left) is not type(right) and not (_is_number(left) and _is_number(right)):
                raise CelError("no such overload: +")
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return _divide(left, right)
        case "%":
            return left - right * _divide(left, right)
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
    return left >= right


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": len,
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "split": lambda text, separator: text.split(separator),
    "join": lambda items, separator="": separator.join(items),
    "replace": lambda text, old, new: text.replace(old, new),
    "indexOf": lambda text, part: text.find(part),
    "substring": lambda text, start, end=None: text[start:end],
    "string": _text,
    "int": int,
    "double": float,
    "sum": sum,
    "min": lambda items: min(items),
    "max": lambda items: max(items),
    "isSorted": lambda items: all(a <= b for a, b in pairwise(items)),
    "type": lambda value: type(value).__name__,
}
