"""Causes of refusal that validation makes: a field that is missing, wrong, or none of what it may be."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kubetide.api.selectors import label_key_problem, label_value_problem
from kubetide.embedded.status import Cause, Raw

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_COUNTS = ("Replicas", "Seconds", ".value")
"""How the paths of fields end that are numbers, and 0 where they are absent."""
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)


def required(path: str, why: str = "") -> Cause:
    """A field that must be there is not."""
    return Cause(path, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def bad_value(path: str, value: Any, rule: str) -> Cause:
    """A field has a value it may not have."""
    return Cause(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {rule}")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)


def unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    """A field has none of the values it may have."""
    listing = ", ".join(f'"{item}"' for item in allowed)
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listing}')


def found_cause(obj: Raw, path: str, reason: str, rule: str) -> Cause:
    """Say of a broken rule what kind it is, and of the value at its place what it is."""
    match reason:
        case "FieldValueRequired":
            return required(path, rule)
        case "FieldValueForbidden":
            return Cause(path, reason, f"Forbidden: {rule}")
    value = _value_at(obj, path)
    if value is None:
        value = 0 if path.endswith(_COUNTS) else ""
    word = "Unsupported" if reason == "FieldValueNotSupported" else "Invalid"
    return Cause(path, reason, f"{word} value: {_shown(value)}: {rule}")


def _value_at(obj: Any, path: str) -> Any:
    """Return what is at the place that a path such as `spec.metrics[0].type` names, None if nothing is."""
    for name, index in _STEP.findall(path):
        if index:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
        else:
            obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def label_problems(labels: Raw | None, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a map of labels."""
    for key, value in (labels or {}).items():
        problem = label_key_problem(key) or label_value_problem(value or "")
        if problem:
            yield bad_value(path, key if label_key_problem(key) else value, problem)


_NAME_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def name_problems(name: str, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a qualified name, such as the key of a label or the type of a condition."""
    if not name:
        yield bad_value(path, name, "name part must be non-empty")
        yield bad_value(path, name, _NAME_TEXT)
    elif problem := label_key_problem(name):
        yield bad_value(path, name, problem)


def port_problems(number: Any, path: str) -> Iterator[Cause]:
    """Yield what is wrong with the number of a port."""
    if not isinstance(number, int) or not 0 < number < 65536:
        yield bad_value(path, number, "must be between 1 and 65535, inclusive")


def selector_problems(selector: Raw | None, path: str) -> Iterator[Cause]:
    """Yield what is wrong with the expressions of a label selector."""
    for index, expression in enumerate((selector or {}).get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator = expression.get("operator") or ""
        if operator in ("In", "NotIn"):
            if not expression.get("values"):
                yield required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if expression.get("values"):
                why = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield Cause(f"{here}.values", "FieldValueForbidden", why)
        else:
            yield bad_value(f"{here}.operator", operator, "not a valid selector operator")
        yield from name_problems(expression.get("key") or "", f"{here}.key")
