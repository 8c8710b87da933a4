"""Structural schemas: what a CRD says its objects look like, and what follows from it.

`prune` drops fields that the schema does not name, `default` fills absent ones, `problems` names what breaks the
schema. Unknown keywords are ignored; `x-kubernetes-preserve-unknown-fields`, `-int-or-string` and
`-embedded-resource` have their meaning. CEL rules are in `conditions`. Matching patterns has a budget per object.
"""

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from kubetide.embedded.apiserver.rest.status import Cause, Raw
from kubetide.embedded.apiserver.validation.budget import CannotJudge, OutOfBudget, WorkBudget
from kubetide.embedded.apiserver.validation.patterns import PatternError, compile_pattern

_EMBEDDED = ("apiVersion", "kind", "metadata")
_MATCHING_STEPS = 500_000
_MATCHED_PER_STEP = 128
"""Steps of a pattern that take about a microsecond, where RE2 is slowest."""


def prune(value: Any, schema: Raw, path: str = "", *, root: bool = False) -> list[str]:
    """Remove what the schema does not name, in place, and return the paths that went."""
    dropped: list[str] = []
    if isinstance(value, dict):
        preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        embedded = root or bool(schema.get("x-kubernetes-embedded-resource"))
        for key in list(value):
            here = f"{path}.{key}" if path else key
            if embedded and key in _EMBEDDED:
                continue
            if key in properties:
                dropped += prune(value[key], properties[key], here)
            elif isinstance(additional, dict):
                dropped += prune(value[key], additional, here)
            elif additional is True or preserve:
                continue
            else:
                del value[key]
                dropped.append(here)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            dropped += prune(item, schema["items"], f"{path}[{index}]")
    return dropped


def default(value: Any, schema: Raw) -> None:
    """Fill in defaults below `value`, in place. A null where null is not allowed counts as absent.

    A member that counts as absent goes; an item of a list cannot, so without a default it stays, to be refused.
    """
    if isinstance(value, dict):
        known = schema.get("properties") or {}
        for key, below in known.items():
            _settle(value, key, below, absent=key not in value)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for key in [key for key in value if key not in known]:
                _settle(value, key, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index in range(len(value)):
            _settle(value, index, schema["items"])


def _settle(holder: Any, place: Any, schema: Raw, *, absent: bool = False) -> None:
    """Default what is at one place of an object or a list."""
    present = None if absent else holder[place]
    if present is None and (absent or not schema.get("nullable")):
        if "default" in schema:
            holder[place] = present = _copy(schema["default"])
        elif not absent and isinstance(holder, dict):
            del holder[place]
    if present is not None:
        default(present, schema)


def problems(value: Any, schema: Raw, path: str = "", budget: WorkBudget | None = None) -> Iterator[Cause]:
    """Yield everything that breaks the schema; raise CannotJudge where that cannot be said."""
    budget = budget or WorkBudget(_MATCHING_STEPS)
    if value is None:
        if not schema.get("nullable"):
            yield _type_cause(path, schema.get("type") or "object", "null")
        return
    if not _has_type(value, schema):
        wanted = "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type"))
        yield _type_cause(path, wanted, type_name(value))
        return
    yield from _value_problems(value, schema, path, budget)
    if isinstance(value, dict):
        yield from _object_problems(value, schema, path, budget)
    elif isinstance(value, list):
        yield from _list_problems(value, schema, path, budget)
    for rule in schema.get("allOf") or ():
        yield from problems(value, rule, path, budget)
    alternatives = schema.get("anyOf") or ()
    if alternatives and not any(_fits(value, rule, path, budget) for rule in alternatives):
        yield _invalid(path, value, "must validate at least one schema (anyOf)")
    exclusive = schema.get("oneOf") or ()
    if exclusive and sum(_fits(value, rule, path, budget) for rule in exclusive) != 1:
        yield _invalid(path, value, "must validate one and only one schema (oneOf)")
    if "not" in schema and _fits(value, schema["not"], path, budget):
        yield _invalid(path, value, "must not validate the schema (not)")


def _fits(value: Any, schema: Raw, path: str, budget: WorkBudget) -> bool:
    return next(problems(value, schema, path, budget), None) is None


def _value_problems(value: Any, schema: Raw, path: str, budget: WorkBudget) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in schema["enum"])
        yield Cause(path, "FieldValueNotSupported", f"Unsupported value: {_text(value)}: supported values: {allowed}")
    if isinstance(value, str):
        yield from _string_problems(value, schema, path, budget)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_problems(value, schema, path)


def _string_problems(value: str, schema: Raw, path: str, budget: WorkBudget) -> Iterator[Cause]:
    if len(value) < schema.get("minLength", 0):
        yield _invalid(path, value, f"should be at least {schema['minLength']} chars long")
    if len(value) > schema.get("maxLength", len(value)):
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes")
    pattern = schema.get("pattern")
    if pattern and not _matches(value, pattern, path, budget):
        yield _invalid(path, value, f"should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield _invalid(path, value, "must be of type date-time")


def _matches(value: str, pattern: str, path: str, budget: WorkBudget) -> bool:
    try:
        compiled = compile_pattern(pattern)
        budget.spend(compiled.cost(value) // _MATCHED_PER_STEP)
    except PatternError as error:
        # Only a definition that was stored before patterns were checked has one.
        raise CannotJudge(f"the pattern '{pattern}' of the schema is not valid: {error}", field=path) from error
    except OutOfBudget as error:
        raise CannotJudge(f"too much text to be matched with '{pattern}'", field=path) from error
    return compiled.found_in(value)


def _number_problems(value: float, schema: Raw, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (value == least and schema.get("exclusiveMinimum"))):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, value, f"should be {word} {least}")
    if most is not None and (value > most or (value == most and schema.get("exclusiveMaximum"))):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, value, f"should be {word} {most}")
    step = schema.get("multipleOf")
    if step and not math.isclose(math.remainder(value, step), 0, abs_tol=1e-9):
        yield _invalid(path, value, f"should be a multiple of {step}")


def _object_problems(value: Raw, schema: Raw, path: str, budget: WorkBudget) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    if len(value) > schema.get("maxProperties", len(value)):
        yield _invalid(path, len(value), f"must have at most {schema['maxProperties']} items")
    if len(value) < schema.get("minProperties", 0):
        yield _invalid(path, len(value), f"should have at least {schema['minProperties']} properties")
    for key, member in value.items():
        below = properties.get(key, additional)
        if isinstance(below, dict):
            yield from problems(member, below, f"{path}.{key}" if path else key, budget)


def _list_problems(value: list[Any], schema: Raw, path: str, budget: WorkBudget) -> Iterator[Cause]:
    if len(value) > schema.get("maxItems", len(value)):
        yield Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {schema['maxItems']} items")
    if len(value) < schema.get("minItems", 0):
        yield _invalid(path, len(value), f"should have at least {schema['minItems']} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from problems(item, items, f"{path}[{index}]", budget)
    yield from _duplicates(value, schema, path)


def _duplicates(value: list[Any], schema: Raw, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        compared = item if kind == "set" else [item.get(key) for key in keys] if isinstance(item, dict) else item
        identity = msgspec.json.encode(compared, order="deterministic")
        if identity in seen:
            yield Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {_text(item)}")
        seen.add(identity)


def _has_type(value: Any, schema: Raw) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    match schema.get("type"):
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
    return True


def type_name(value: Any) -> str:
    """Return what JSON calls the type of a value."""
    names: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "number" if isinstance(value, float) else "null")


def _type_cause(path: str, wanted: str, got: str) -> Cause:
    return Cause(
        path,
        "FieldValueTypeInvalid",
        f'Invalid value: "{got}": {path or "the object"} in body must be of type {wanted}: "{got}"',
    )


def _invalid(path: str, value: Any, rule: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f"Invalid value: {_text(value)}: {path} in body {rule}")


def _text(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def patterns(schema: Raw, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every pattern of a schema, with where it stands."""
    if isinstance(schema.get("pattern"), str):
        yield f"{path}.pattern", schema["pattern"]
    for where, below in subschemas(schema):
        yield from patterns(below, f"{path}.{where}")


def subschemas(schema: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the schemas directly below one, with where they stand."""
    for name, below in (schema.get("properties") or {}).items():
        if isinstance(below, dict):
            yield f"properties[{name}]", below
    for keyword in ("additionalProperties", "items", "not"):
        if isinstance(schema.get(keyword), dict):
            yield keyword, schema[keyword]
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, below in enumerate(schema.get(keyword) or ()):
            if isinstance(below, dict):
                yield f"{keyword}[{index}]", below


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
