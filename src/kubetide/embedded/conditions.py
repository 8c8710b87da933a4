"""Where CEL decides: matchConditions of webhooks, and the rules in the schemas of custom resources.

A schema rule sees its value as `self`. A rule that mentions `oldSelf` is about changes: it is asked only when there
was a value before.
"""

from collections.abc import Iterator
from typing import Any

from kubetide.embedded.cel import CelError, evaluate, mentions
from kubetide.embedded.status import Cause, Raw

_RULES = "x-kubernetes-validations"


def evaluate_conditions(conditions: tuple[Raw, ...], request: Raw) -> bool:
    """Whether every condition holds for an admission request; one that is false decides over one that fails."""
    variables = {"request": request, "object": request.get("object"), "oldObject": request.get("oldObject")}
    trouble: CelError | None = None
    for condition in conditions:
        try:
            if evaluate(str(condition.get("expression")), variables) is not True:
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


def broken_rules(value: Any, schema: Raw, path: str = "", old: Any = None) -> Iterator[Cause]:
    """Yield the rules that a value breaks, at every level of its schema."""
    for rule in schema.get(_RULES) or ():
        cause = _broken(value, rule, path, old)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, member in value.items():
            below = properties.get(key, additional)
            if isinstance(below, dict) and member is not None:
                yield from broken_rules(member, below, f"{path}.{key}" if path else key, before.get(key))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from broken_rules(item, schema["items"], f"{path}[{index}]", _matching(item, schema, old))


def _matching(item: Any, schema: Raw, old: Any) -> Any:
    """Return the former element with the same keys, in lists that have keys."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return None
    for former in old:
        if isinstance(former, dict) and all(former.get(key) == item.get(key) for key in keys):
            return former
    return None


def _broken(value: Any, rule: Raw, path: str, old: Any) -> Cause | None:
    expression = str(rule.get("rule") or "true")
    try:
        variables = {"self": value}
        if mentions(expression, "oldSelf"):
            if old is None:
                return None
            variables["oldSelf"] = old
        if evaluate(expression, variables) is True:
            return None
        message = _message(rule, variables)
    except CelError as error:
        message = f"rule {expression!r} cannot be evaluated: {error.message}"
    where = path + str(rule.get("fieldPath") or "")
    reason = str(rule.get("reason") or "FieldValueInvalid")
    return Cause(where.lstrip("."), reason, f"Invalid value: {message}")


def _message(rule: Raw, variables: Raw) -> str:
    if rule.get("messageExpression"):
        told = evaluate(str(rule["messageExpression"]), variables)
        if isinstance(told, str) and told.strip():
            return told
    return str(rule.get("message") or f"failed rule: {rule.get('rule')}")
