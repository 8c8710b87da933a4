"""Fields that a type does not have, and fields written twice: dropped always, and reported as the client asked.

`fieldValidation=Strict` refuses the request, `Warn` (what counts unless said otherwise) answers with warnings, `Ignore`
says nothing. Server-side apply is stricter: it takes no field that it could not own.
"""

from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec
import yaml

from kubetide.api.objects import scheme
from kubetide.api.values.codec import without_nulls
from kubetide.api.values.patch import RESULT_LIMIT, JsonPatch, MergePatch, Patch, StrategicMergePatch
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.bodies import APPLY_YAML
from kubetide.embedded.apiserver.rest.requests import Request
from kubetide.embedded.apiserver.rest.status import Cause, Raw, StatusError, bad_request, invalid, too_large
from kubetide.embedded.apiserver.storage.objects import Entry
from kubetide.embedded.apiserver.validation import fields

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_OPERATIONS = fields.Many("[]", fields.Members({"op": None, "path": None, "from": None, "value": None}))


def mode_of(request: Request) -> str:
    """Return how a request wants unknown fields to be treated."""
    mode = request.query.get("fieldValidation")
    if not mode:
        return WARN
    if mode not in (STRICT, WARN, IGNORE):
        text = f'Unsupported value: "{mode}": supported values: "", "Ignore", "Strict", "Warn"'
        cause = Cause("fieldValidation", "FieldValueNotSupported", text)
        raise invalid("meta.k8s.io", _OPTIONS.get(request.method, "PatchOptions"), "", [cause])
    return mode


def drop_unknown(resource: ApiResource, obj: Raw) -> list[str]:
    """Remove what the type does not have, in place, and return a complaint about each."""
    if resource.crd is None:
        return drop_from(resource.api_version, resource.kind, obj)
    return _unknown(sorted([*resource.crd.prune(obj), *fields.metadata_dropped(obj)]))


def drop_from(api_version: str, kind: str, obj: Raw) -> list[str]:
    """Do the same for an object of a built-in type."""
    return _drop(fields.type_of(api_version, kind), obj)


def _drop(declared: fields.Members | None, obj: Raw) -> list[str]:
    return [] if declared is None or fields.knows(declared, obj) else _unknown(fields.prune(obj, declared))


def _unknown(paths: list[str]) -> list[str]:
    return [f'unknown field "{path}"' for path in paths]


def check_body(request: Request, resource: ApiResource, obj: Raw) -> list[str]:
    """Drop what does not belong into a decoded object; return warnings, or refuse it if the client asked for that."""
    if resource.crd is None:
        return check_part(request, resource.api_version, resource.kind, obj)
    mode = mode_of(request)
    found = drop_unknown(resource, obj)
    if mode == IGNORE:
        return []
    return _settle(mode, resource.kind, resource.version, _with_duplicates(request, obj, None, found))


def check_part(request: Request, api_version: str, kind: str, obj: Raw) -> list[str]:
    """Do the same for an object of a built-in type, such as the body of a subresource, which has one of its own."""
    mode = mode_of(request)
    declared = fields.type_of(api_version, kind)
    found = _drop(declared, obj)
    if mode == IGNORE:
        return []
    return _settle(mode, kind, api_version.rpartition("/")[2], _with_duplicates(request, obj, declared, found))


def _settle(mode: str, kind: str, version: str, found: list[str]) -> list[str]:
    if found and mode == STRICT:
        why = f"strict decoding error: {', '.join(_joined(found))}"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
    return found


def _with_duplicates(request: Request, obj: Raw, kind: fields.Members | None, unknown: list[str]) -> list[str]:
    """Return all complaints: in the order of the text where one reading finds both."""
    body = request.body or b""
    if not is_json(request):
        return [*_yaml_duplicates(body), *unknown] if _is_yaml(request) else unknown
    if not unknown and not fields.has_duplicates(body, obj):
        return unknown
    return fields.complaints(body, kind) if kind is not None else [*fields.complaints(body, None), *unknown]


def patch_complaints(request: Request, patch: Patch) -> list[str]:
    """Return what is wrong with the fields of a patch itself."""
    body = request.body or b""
    if mode_of(request) == IGNORE:
        return []
    if isinstance(patch, JsonPatch):
        return [f"json patch {text}" for text in fields.complaints(body, _OPERATIONS)]
    written = patch.body if isinstance(patch, MergePatch | StrategicMergePatch) else None
    return fields.complaints(body, None) if fields.has_duplicates(body, written) else []


def check_patched(request: Request, found: list[str]) -> list[str]:
    """Return warnings about a patch and what it made, or refuse it if the client asked for that."""
    if not found:
        return found
    mode = mode_of(request)
    if mode == STRICT:
        body = (request.body or b"").decode("utf-8", "replace")
        why = f"Invalid value: {msgspec.json.encode(body).decode()}: strict decoding error: {', '.join(_joined(found))}"
        raise invalid("", "", "", [Cause("patch", "FieldValueInvalid", why)])
    return [] if mode == IGNORE else found


def check_applied(request: Request, resource: ApiResource, config: Raw) -> list[str]:
    """Refuse an applied configuration with unknown fields, whatever the client asked for; return warnings."""
    mode = mode_of(request)
    metadata = config.get("metadata") or {}
    who = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    unknown = drop_unknown(resource, config)
    if unknown:
        path = min(unknown).removeprefix('unknown field "').rstrip('"')
        what = f"{who}; {resource.api_version}, Kind={resource.kind}"
        raise StatusError(
            500, "", f"failed to create typed patch object ({what}): .{path}: field not declared in schema"
        )
    if mode == IGNORE or (is_json_text(request) and not fields.has_duplicates(request.body or b"", config)):
        return []
    found = _yaml_duplicates(request.body or b"")
    if found and mode == STRICT:
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {_joined(found)[0]}")
    return found


def is_json(request: Request) -> bool:
    """Whether the body is sent as JSON."""
    return _media(request) in ("", "application/json")


def is_json_text(request: Request) -> bool:
    """Whether the body is JSON, whatever it is sent as."""
    return (request.body or b"").lstrip()[:1] == b"{"


def _is_yaml(request: Request) -> bool:
    return _media(request) in ("application/yaml", APPLY_YAML)


def _media(request: Request) -> str:
    return request.content_type.partition(";")[0].strip()


_SET_TWICE = "already set in map"


def _yaml_duplicates(body: bytes) -> list[str]:
    try:
        root = yaml.compose(body, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    found: list[str] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    found.append(f'line {key.start_mark.line + 1}: key "{key.value}" {_SET_TWICE}')
                seen.add(key.value)
                waiting.append(value)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return found


def _joined(found: list[str]) -> list[str]:
    """Return complaints as a Status lists them: those about YAML lines are one."""
    lines = [text for text in found if text.endswith(_SET_TWICE)]
    if not lines:
        return found
    told = "yaml: unmarshal errors:\n" + "\n".join(f"  {line}" for line in lines)
    return [told, *(text for text in found if text not in lines)]


# Refuses objects whose fields have the wrong JSON type: a text where a list belongs, a number where a name belongs;

_PART = (dict, NoneType)


@lru_cache(maxsize=256)
def _type_of(group: str, version: str, plural: str) -> Any:
    for value in vars(scheme).values():
        if not isinstance(value, scheme.Resource):
            continue
        if (value.group, value.version, value.plural) == (group, version, plural):
            return value.type
    return None


def check_shape(resource: ApiResource, obj: Raw) -> None:
    """Refuse an object that does not decode as its kind."""
    kind = _type_of(resource.group, resource.version, resource.plural) if resource.crd is None else None
    for part in ("spec", "status"):
        if not isinstance(obj.get(part), _PART):
            raise _refusal(resource, f"{part} must be an object")
    if kind is None:
        return
    try:
        msgspec.convert(obj, kind)
    except msgspec.ValidationError:
        try:
            msgspec.convert(without_nulls(obj), kind)
        except msgspec.ValidationError as error:
            raise _refusal(resource, str(error)) from error


def _refusal(resource: ApiResource, why: str) -> StatusError:
    return bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def check_size(entry: Entry, request: Request, wanted: Raw) -> None:
    """Refuse a patch that makes an object larger than one can be created; what cannot be is not measured."""
    if len(entry.encoded) + len(request.body or b"") <= RESULT_LIMIT:
        return
    size = len(msgspec.json.encode(wanted))
    if size > RESULT_LIMIT and size > len(entry.encoded):
        raise too_large(RESULT_LIMIT)
