"""Refuses objects whose fields have the wrong JSON type: a text where a list belongs, a number where a name belongs;
and patches that make an object larger than it could be created.

The typed objects of `kubetide.api` say what the fields are. An object that controllers could not decode must not get
into the store; fields that no type declares are not looked at.
"""

from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec

from kubetide.api import scheme
from kubetide.api.codec import without_nulls
from kubetide.api.patch import RESULT_LIMIT
from kubetide.embedded.objects import Entry
from kubetide.embedded.requests import Request
from kubetide.embedded.resources import ApiResource
from kubetide.embedded.status import Raw, Refusal, bad_request, too_large

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


def _refusal(resource: ApiResource, why: str) -> Refusal:
    return bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def check_size(entry: Entry, request: Request, wanted: Raw) -> None:
    """Refuse a patch that makes an object larger than one can be created; what cannot be is not measured."""
    if len(entry.encoded) + len(request.body or b"") <= RESULT_LIMIT:
        return
    size = len(msgspec.json.encode(wanted))
    if size > RESULT_LIMIT and size > len(entry.encoded):
        raise too_large(RESULT_LIMIT)
