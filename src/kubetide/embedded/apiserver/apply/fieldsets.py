"""Sets of fields in the shape of `fieldsV1`, and the arithmetic server-side apply needs.

`{"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}}`: members start with
`f:`, elements of keyed lists with `k:`, values of sets with `v:`. A leaf is an empty object; lists without a known
key are leaves as a whole.
"""

from typing import Any

import msgspec

from kubetide.api.values.strategic import MERGED_SETS, merge_key
from kubetide.embedded.apiserver.rest.status import Raw

_IGNORED_TOP = ("f:apiVersion", "f:kind", "f:status")
_IGNORED_META = (
    "f:name",
    "f:namespace",
    "f:uid",
    "f:resourceVersion",
    "f:creationTimestamp",
    "f:generation",
    "f:managedFields",
    "f:generateName",
    "f:selfLink",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
)


def of_object(obj: Raw) -> Raw:
    """Return all fields that an object sets, without what the server owns."""
    return _own(_of(obj))


def changed(old: Raw, new: Raw) -> Raw:
    """Return the fields that differ: set in `new` with another value than in `old`."""
    return _own(_changed(old, new))


def _own(fields: Raw) -> Raw:
    result = {key: value for key, value in fields.items() if key not in _IGNORED_TOP or key == "f:status"}
    result.pop("f:apiVersion", None)
    result.pop("f:kind", None)
    metadata = result.get("f:metadata")
    if metadata is not None:
        metadata = {key: value for key, value in metadata.items() if key not in _IGNORED_META}
        result["f:metadata"] = metadata
        if not metadata:
            del result["f:metadata"]
    return result


def _of(value: Any, field: str = "") -> Raw:
    if isinstance(value, dict):
        return {f"f:{key}": _of(member, key) for key, member in value.items()}
    if isinstance(value, list) and value:
        keyed = keyed_elements(field, value)
        if keyed is not None:
            return {key: {".": {}, **_of(element)} for key, element in keyed.items()}
        if field in MERGED_SETS:
            return {f"v:{msgspec.json.encode(item).decode()}": {} for item in value}
    return {}


def _changed(old: Raw, new: Raw) -> Raw:
    found: Raw = {}
    for key, member in new.items():
        if key not in old:
            found[f"f:{key}"] = _of(member, key)
        elif old[key] != member:
            inside = _changed_inside(old[key], member, key)
            if inside is None:
                found[f"f:{key}"] = _of(member, key)
            elif inside:
                found[f"f:{key}"] = inside
    return found


def _changed_inside(old: Any, new: Any, field: str) -> Raw | None:
    """Return what differs inside two values that can be compared part by part, else None."""
    if isinstance(new, dict) and isinstance(old, dict):
        return _changed(old, new)
    if not (isinstance(new, list) and isinstance(old, list) and new and old):
        return None
    after, before = keyed_elements(field, new), keyed_elements(field, old)
    if after is None or before is None:
        return None
    found: Raw = {}
    for key, element in after.items():
        if key not in before:
            found[key] = {".": {}, **_of(element)}
        elif before[key] != element:
            inside = _changed(before[key], element)
            if inside:
                found[key] = inside
    return found


def keyed_elements(field: str, items: list[Any]) -> Raw | None:
    """Return the elements of a list by their `k:` name, or None if the list has no key."""
    if not all(isinstance(item, dict) for item in items):
        return None
    key = merge_key(field, items)
    if key is None or not all(key in item for item in items):
        return None
    return {f"k:{msgspec.json.encode({key: item[key]}).decode()}": item for item in items}


def union(one: Raw, other: Raw) -> Raw:
    """Return the fields in either set."""
    result = dict(one)
    for key, below in other.items():
        result[key] = union(result[key], below) if key in result else below
    return result


def difference(one: Raw, other: Raw) -> Raw:
    """Return the fields of `one` that are not in `other`."""
    result: Raw = {}
    for key, below in one.items():
        if key not in other:
            result[key] = below
        elif below:
            rest = difference(below, other[key])
            if rest:
                result[key] = rest
    return result


def intersection(one: Raw, other: Raw) -> Raw:
    """Return the fields in both sets."""
    result: Raw = {}
    for key, below in one.items():
        if key not in other:
            continue
        if not below or not other[key]:
            result[key] = {}
            continue
        common = intersection(below, other[key])
        if common:
            result[key] = common
    return result


def paths(fields: Raw, prefix: str = "") -> list[str]:
    """Return the leaves as texts such as `.spec.replicas`, for messages."""
    found: list[str] = []
    for key, below in fields.items():
        if key == ".":
            continue
        kind, _, name = key.partition(":")
        here = f"{prefix}.{name}" if kind == "f" else f"{prefix}[{name.strip('{}')}]"
        inner = paths(below, here)
        found.extend(inner or [here])
    return found


def remove(value: Any, fields: Raw, field: str = "") -> Any:
    """Return `value` without the given fields; what becomes empty by it goes too."""
    if isinstance(value, dict):
        result: Raw = {}
        for key, member in value.items():
            below = fields.get(f"f:{key}")
            if below is None:
                result[key] = member
            elif below:
                rest = remove(member, below, key)
                if rest not in ({}, []):
                    result[key] = rest
        return result
    if isinstance(value, list):
        keyed = keyed_elements(field, value)
        if keyed is not None:
            kept = []
            for key, element in keyed.items():
                below = fields.get(key)
                if below is None:
                    kept.append(element)
                elif "." not in below:
                    kept.append(remove(element, below))
            return kept
        if field in MERGED_SETS:
            return [item for item in value if f"v:{msgspec.json.encode(item).decode()}" not in fields]
    return value
