"""Where CEL decides: matchConditions of webhooks, and the rules in the schemas of custom resources.

A schema rule sees its value as `self`. A rule that mentions `oldSelf` is about changes: it is asked only when there
was a value before. All rules of one object share a budget.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kubetide.embedded.apiserver.cel.evaluate import CelCostExceeded, evaluate, literal_patterns, mentions
from kubetide.embedded.apiserver.cel.values import CelError
from kubetide.embedded.apiserver.rest.status import Cause, Raw
from kubetide.embedded.apiserver.validation.budget import CannotJudge, WorkBudget
from kubetide.embedded.apiserver.validation.schema import subschemas

_STEPS_PER_OBJECT = 300_000
_RULES = "x-kubernetes-validations"


def evaluate_conditions(conditions: tuple[Raw, ...], request: Raw) -> bool:
    """Whether every condition holds for an admission request; one that is false decides over one that fails."""
    variables = {"request": request, "object": request.get("object"), "oldObject": request.get("oldObject")}
    trouble: CelError | None = None
    budget = WorkBudget(_STEPS_PER_OBJECT)
    for condition in conditions:
        try:
            if evaluate(str(condition.get("expression")), variables, budget) is not True:
                return False
        except CelError as error:
            trouble = error
    if trouble is not None:
        raise trouble
    return True


def has_rules(schema: Any) -> bool:
    """Whether a schema has a rule anywhere."""
    if isinstance(schema, dict):
        return _RULES in schema or any(has_rules(part) for part in schema.values())
    return isinstance(schema, list) and any(has_rules(part) for part in schema)


def rule_patterns(schema: Raw, path: str) -> Iterator[tuple[str, str]]:
    """Yield every regular expression that is written out in a rule, with where the rule stands."""
    for index, rule in enumerate(schema.get(_RULES) or ()):
        if isinstance(rule, dict):
            for pattern in literal_patterns(str(rule.get("rule") or "true")):
                yield f"{path}.{_RULES}[{index}].rule", pattern
    for where, below in subschemas(schema):
        yield from rule_patterns(below, f"{path}.{where}")


def broken_rules(
    value: Any, schema: Raw, path: str = "", old: Any = None, budget: WorkBudget | None = None
) -> Iterator[Cause]:
    """Yield the rules that a value breaks, at every level of its schema."""
    budget = budget or WorkBudget(_STEPS_PER_OBJECT)
    for rule in schema.get(_RULES) or ():
        cause = _broken(value, rule, path, old, budget)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, member in value.items():
            below = properties.get(key, additional)
            if isinstance(below, dict) and member is not None:
                yield from broken_rules(member, below, f"{path}.{key}" if path else key, before.get(key), budget)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        listed = old if keys and isinstance(old, list) else []
        former = {_identity(item, keys): item for item in reversed(listed) if isinstance(item, dict)}
        for index, item in enumerate(value):
            same = former.get(_identity(item, keys)) if former else None
            yield from broken_rules(item, schema["items"], f"{path}[{index}]", same, budget)


def _identity(item: Any, keys: Sequence[str]) -> bytes | None:
    """Return what makes an element the same as a former one, in lists that have keys."""
    if not isinstance(item, dict):
        return None
    return msgspec.json.encode([item.get(key) for key in keys], order="deterministic")


def _broken(value: Any, rule: Raw, path: str, old: Any, budget: WorkBudget) -> Cause | None:
    expression = str(rule.get("rule") or "true")
    try:
        variables = {"self": value}
        if mentions(expression, "oldSelf"):
            if old is None:
                return None
            variables["oldSelf"] = old
        if evaluate(expression, variables, budget) is True:
            return None
        message = _message(rule, variables, budget)
    except CelCostExceeded as error:
        raise CannotJudge(f"rule {expression!r}: {error.message}", field=path) from error
    except CelError as error:
        message = f"rule {expression!r} cannot be evaluated: {error.message}"
    where = path + str(rule.get("fieldPath") or "")
    reason = str(rule.get("reason") or "FieldValueInvalid")
    return Cause(where.lstrip("."), reason, f"Invalid value: {message}")


def _message(rule: Raw, variables: Raw, budget: WorkBudget) -> str:
    if rule.get("messageExpression"):
        told = evaluate(str(rule["messageExpression"]), variables, budget)
        if isinstance(told, str) and told.strip():
            return told
    return str(rule.get("message") or f"failed rule: {rule.get('rule')}")
