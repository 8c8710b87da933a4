"""What the API server refuses, and the Status that reports it.

A `StatusError` is raised anywhere below the transports and becomes a `Status` object with the code, reason, message and
details that Kubernetes clients know how to read. One constructor per reason keeps the wording in one place.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubetide.api.values.selectors import label_key_problem, label_value_problem
from kubetide.errors import KubetideError

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong, and why."""

    field: str
    reason: str
    message: str

    def to_raw(self) -> Raw:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(KubetideError):
    """A request the API server answers with a failure Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        group: str = "",
        resource: str = "",
        name: str = "",
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.group = group
        self.resource = resource
        self.name = name
        self.causes = tuple(causes)
        self.retry_after = retry_after

    def to_raw(self) -> Raw:
        details: Raw = {}
        if self.name:
            details["name"] = self.name
        if self.group:
            details["group"] = self.group
        if self.resource:
            details["kind"] = self.resource
        if self.causes:
            details["causes"] = [cause.to_raw() for cause in self.causes]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        body: Raw = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if details:
            body["details"] = details
        body["code"] = self.code
        return body


def qualified(group: str, resource: str) -> str:
    """Return `deployments.apps` or, for the core group, `pods`."""
    return f"{resource}.{group}" if group else resource


def not_found(group: str, resource: str, name: str) -> StatusError:
    """The object is not there."""
    text = f'{qualified(group, resource)} "{name}" not found'
    return StatusError(404, "NotFound", text, group=group, resource=resource, name=name)


def no_such_path() -> StatusError:
    """The path names no resource at all."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, resource: str, name: str) -> StatusError:
    """An object of that name is already there."""
    text = f'{qualified(group, resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, group=group, resource=resource, name=name)


def conflict(group: str, resource: str, name: str, why: str = "") -> StatusError:
    """The write was based on a state that is no longer the current one."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    text = f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}'
    return StatusError(409, "Conflict", text, group=group, resource=resource, name=name)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """The object breaks rules; every broken one is named."""
    told = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listing = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    text = f'{qualified(group, kind)} "{name}" is invalid: {listing}'
    return StatusError(422, "Invalid", text, group=group, resource=kind, name=name, causes=causes)


def bad_request(message: str) -> StatusError:
    """The request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, resource: str, name: str, why: str) -> StatusError:
    """The request is understood and refused."""
    text = f'{qualified(group, resource)} "{name}" is forbidden: {why}' if resource else f"forbidden: {why}"
    return StatusError(403, "Forbidden", text, group=group, resource=resource, name=name)


def unauthorized() -> StatusError:
    """The request has no valid credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed(group: str, resource: str, verb: str) -> StatusError:
    """The resource has no such verb."""
    text = f"{verb} is not supported on resources of kind {qualified(group, resource)!r}".replace("'", '"')
    return StatusError(405, "MethodNotAllowed", text, group=group, resource=resource)


def unsupported_media(content_type: str, known: Sequence[str]) -> StatusError:
    """The body is in a form the server does not read."""
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
    return StatusError(415, "UnsupportedMediaType", text)


def too_large(limit: int) -> StatusError:
    """The body is bigger than the server reads."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def gone(message: str = "The resourceVersion for the provided watch is too old.") -> StatusError:
    """History does not reach back that far."""
    return StatusError(410, "Expired", message)


def too_many_requests(message: str, *, retry_after: int, causes: Sequence[Cause] = ()) -> StatusError:
    """The request may succeed later."""
    return StatusError(429, "TooManyRequests", message, retry_after=retry_after, causes=causes)


def internal(message: str) -> StatusError:
    """The server, or a webhook it must ask, failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def insufficient_storage(message: str) -> StatusError:
    """There is no room for the change."""
    return StatusError(507, "InsufficientStorage", message)


def unavailable(message: str) -> StatusError:
    """A part of the API is not there at the moment."""
    return StatusError(503, "ServiceUnavailable", message)


def timed_out(message: str) -> StatusError:
    """The answer would have taken too long."""
    return StatusError(504, "Timeout", message, retry_after=1)


SUCCESS: Raw = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


# Causes of a Status that validation gives: a field that is missing, wrong, or none of what it may be.

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
    """Return what kind of rule was broken, and what the value at its place is."""
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


def selector_problems(selector: Raw | None) -> Iterator[Cause]:
    """Yield what is wrong with the expressions of `spec.selector`."""
    for index, expression in enumerate((selector or {}).get("matchExpressions") or ()):
        here = f"spec.selector.matchExpressions[{index}]"
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
