"""Causes of refusal that validation makes: a field that is missing, wrong, or none of what it may be."""

import re
from collections.abc import Iterator
from typing import Any

from kubetide.api.selectors import label_key_problem, label_value_problem
from kubetide.embedded.status import Cause, Raw

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)


def required(path: str, why: str = "") -> Cause:
    """A field that must be there is not."""
    return Cause(path, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def bad_value(path: str, value: Any, rule: str) -> Cause:
    """A field has a value it may not have."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {rule}")


def unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    """A field has none of the values it may have."""
    listing = ", ".join(f'"{item}"' for item in allowed)
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listing}')


def label_problems(labels: Raw | None, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a map of labels."""
    for key, value in (labels or {}).items():
        problem = label_key_problem(key) or label_value_problem(value or "")
        if problem:
            yield bad_value(path, key if label_key_problem(key) else value, problem)
