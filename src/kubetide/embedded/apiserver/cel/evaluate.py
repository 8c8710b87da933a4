"""Evaluates CEL expressions, as far as CRD rules and webhook conditions use the language.

Literals, members, indexes, arithmetic, comparison, `in`, `&&`, `||`, `?:`, the macros `has`, `all`, `exists`,
`exists_one`, `filter` and `map`, and the usual functions on texts, lists and maps. `&&` and `||` forgive an error on
one side if the other side decides. An expression may take a bounded number of steps, each part of it at least one and
large values more (`cel_values`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubetide.embedded.apiserver.cel.syntax import Node, parse
from kubetide.embedded.apiserver.cel.values import CelError, binary, boolean, call, negative
from kubetide.embedded.apiserver.validation.budget import OutOfBudget, WorkBudget
from kubetide.embedded.apiserver.validation.patterns import PatternError

_MAX_STEPS = 100_000
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_TROUBLE = (
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    IndexError,
    ArithmeticError,
    RecursionError,
    PatternError,
)
"""What the operations of Python say about values that CEL has no overload for."""


class CelCostExceeded(CelError):
    """An expression takes more steps than it may."""


def evaluate(expression: str, variables: Mapping[str, Any], budget: WorkBudget | None = None) -> Any:
    """Return the value of an expression. `budget` is what several expressions may take together."""
    allowed = _MAX_STEPS if budget is None else min(_MAX_STEPS, budget.left)
    steps = WorkBudget(allowed)
    try:
        return _Run(variables, steps).value(_parsed(expression))
    except OutOfBudget as error:
        raise CelCostExceeded("the expression takes too many steps") from error
    except CelError:
        raise
    except _TROUBLE as error:
        raise CelError(f"{expression!r}: {error}") from error
    finally:
        if budget is not None:
            budget.left -= allowed - steps.left


def literal_patterns(expression: str) -> Iterator[str]:
    """Yield the regular expressions that an expression gives to `matches` as they are."""
    try:
        tree = _parsed(expression)
    except CelError:
        return
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple) and node[:2] == ("call", "matches") and node[3] and node[3][-1][0] == "literal":
            pattern = node[3][-1][1]
            if isinstance(pattern, str):
                yield pattern
        if isinstance(node, (tuple, list)):
            waiting += [part for part in node if isinstance(part, (tuple, list))]


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
    budget: WorkBudget

    def value(self, node: Node) -> Any:
        self.budget.spend(1)
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
                return not boolean(self.value(node[1]))
            case "negative":
                return negative(self.value(node[1]))
            case "choose":
                return self.value(node[2] if boolean(self.value(node[1])) else node[3])
            case "and" | "or":
                return self._logic(node)
            case "binary":
                return binary(node[1], self.value(node[2]), self.value(node[3]), self.budget)
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
                raise CelError(f"no such key: {_short(key)}")
            return holder[key]
        if isinstance(holder, list) and isinstance(key, int) and 0 <= key < len(holder):
            return holder[key]
        raise CelError(f"no such index: {_short(key)}")

    def _logic(self, node: Node) -> bool:
        decisive = node[0] == "or"
        trouble: CelError | None = None
        for side in (node[1], node[2]):
            try:
                if boolean(self.value(side)) is decisive:
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
        if target is not None and name in _MACROS:
            return self._macro(name, self.value(target), arguments)
        values = [self.value(item) for item in arguments]
        if target is not None:
            values.insert(0, self.value(target))
        return call(name, values, self.budget)

    def _macro(self, name: str, holder: Any, arguments: list[Node]) -> Any:
        if not isinstance(holder, (list, dict)):
            raise CelError(f"no such overload: {name} of {type(holder).__name__}")
        items = list(holder)
        variable = arguments[0][1]

        def inside(item: Any, body: Node) -> Any:
            return _Run({**self.variables, variable: item}, self.budget).value(body)

        body = arguments[-1]
        if name == "map":
            kept = items if len(arguments) == 2 else [i for i in items if boolean(inside(i, arguments[1]))]
            return [inside(item, body) for item in kept]
        found = [item for item in items if boolean(inside(item, body))]
        match name:
            case "all":
                return len(found) == len(items)
            case "exists":
                return bool(found)
            case "exists_one":
                return len(found) == 1
        return found


def _short(value: Any) -> str:
    """Return a value as an error names it; a list or map may be too large to be written out."""
    return type(value).__name__ if isinstance(value, (list, dict)) else str(value)[:64]
