"""Strategic merge: how Kubernetes merges a partial object into a whole one.

Objects merge member by member and null removes, as in a merge patch. Lists differ: those in `MERGE_KEYS` merge
element by element, matched by the named key; lists of plain values in `MERGED_SETS` grow; all other lists are
replaced. The tables hold the core types' declared keys; they are looked up by field name, which is unambiguous there
except for `ports`, where the key that the patch uses decides.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from kubetide.errors import PatchError

Raw = dict[str, Any]

MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
MERGED_SETS = frozenset({"finalizers"})

_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_PATCH = "$patch"


def merge(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Raw:
    """Return `target` with `patch` merged in."""
    match patch.get(_PATCH):
        case "replace":
            return {key: _clean(value) for key, value in patch.items() if key != _PATCH and value is not None}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise PatchError(f"unknown directive $patch: {other!r}")
    result = dict(target)
    retained = patch.get(_RETAIN)
    if retained is not None:
        if not isinstance(retained, list):
            raise PatchError(f"{_RETAIN} must be a list")
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_member(result, key, value)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _delete_from(result, key.removeprefix(_DELETE_FROM), value)
        elif key.startswith(_ORDER):
            _reorder(result, key.removeprefix(_ORDER), value)
    return result


def _delete_from(result: Raw, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise PatchError(f"{_DELETE_FROM}{name} must be a list")
    existing = result.get(name)
    if existing is not None and not isinstance(existing, list):
        raise PatchError(f"{name} is not a list: nothing can be deleted from it")
    unwanted = set(map(_encoded, values))
    result[name] = [item for item in existing or [] if _encoded(item) not in unwanted]


def merge_key(field: str, elements: list[Any]) -> str | None:
    """Return the key by which a list merges, or None if it is replaced."""
    candidates = MERGE_KEYS.get(field, ())
    for candidate in candidates:
        if any(isinstance(element, Mapping) and candidate in element for element in elements):
            return candidate
    return None


def _merge_member(result: Raw, key: str, value: Any) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, Mapping):
        old = result.get(key)
        if value.get(_PATCH) == "delete":
            result.pop(key, None)
        else:
            result[key] = merge(old if isinstance(old, Mapping) else {}, value)
    elif isinstance(value, list):
        result[key] = _merge_list(result.get(key), key, value)
    else:
        result[key] = value


def _merge_list(old: Any, field: str, patch: list[Any]) -> list[Any]:
    existing = old if isinstance(old, list) else []
    if field in MERGED_SETS:
        known = set(map(_encoded, existing))
        return existing + [item for item in patch if _encoded(item) not in known]
    replaces = any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" for item in patch)
    key = merge_key(field, patch)
    if key is None or replaces:
        return [_clean(item) for item in patch if not (isinstance(item, Mapping) and set(item) == {_PATCH})]
    for element in patch:
        if not isinstance(element, Mapping) or isinstance(element.get(key), Mapping | list | None):
            raise PatchError(f"an element of {field} lacks its merge key {key!r}")
    return _in_order(_merge_elements(existing, patch, key), existing, patch, key)


def _in_order(merged: list[Any], existing: list[Any], patch: list[Any], key: str) -> list[Any]:
    """Return merged elements as an API server orders them: those of the patch in its order, the others where they
    were, and what is new before what it is not anchored behind.
    """
    places = {_identity(item, key): place for place, item in enumerate(existing)}
    named: dict[Any, int] = {}
    for number, item in enumerate(patch):
        named.setdefault(_identity(item, key), number)
    theirs = deque(item for item in merged if _identity(item, key) not in named)
    ours = deque(
        sorted((item for item in merged if _identity(item, key) in named), key=lambda item: named[_identity(item, key)])
    )
    ordered: list[Any] = []
    while theirs and ours:
        place = places.get(_identity(ours[0], key))
        earlier = place is not None and places[_identity(theirs[0], key)] < place
        ordered.append(theirs.popleft() if earlier else ours.popleft())
    return [*ordered, *theirs, *ours]


def _identity(item: Any, key: str) -> Any:
    found = item.get(key) if isinstance(item, Mapping) else None
    return None if isinstance(found, Mapping | list) else found


def _merge_elements(existing: list[Any], patch: list[Any], key: str) -> list[Any]:
    """Return the elements with those of the patch merged in, deleted or added at the end."""
    result: dict[int, Any] = dict(enumerate(existing))
    places: dict[Any, list[int]] = {}  # of the elements of one key, the first of them last
    for place in reversed(result):
        places.setdefault(_identity(result[place], key), []).append(place)
    for number, element in enumerate(patch, len(existing)):
        found = places.setdefault(_identity(element, key), [])
        if element.get(_PATCH) == "delete":
            if found:
                del result[found.pop()]
        elif found:
            result[found[-1]] = merge(result[found[-1]], element)
        else:
            result[number] = merge({}, element)
            found.append(number)
    return list(result.values())


def _encoded(item: Any) -> bytes:
    return msgspec.json.encode(item, order="deterministic")


def _reorder(result: Raw, field: str, order: Any) -> None:
    """Put the listed elements into the given order; the others keep their places among themselves, before the rest."""
    elements = result.get(field)
    if not isinstance(elements, list) or not isinstance(order, list):
        return
    key = merge_key(field, order)

    def identity(element: Any) -> Any:
        return element.get(key) if key is not None and isinstance(element, Mapping) else element

    wanted = [identity(item) for item in order]
    listed = {repr(name): i for i, name in enumerate(wanted)}
    rank: list[tuple[int, int]] = []
    last = -1
    for position, element in enumerate(elements):
        # An element that the order does not name stays behind the named one that it followed.
        place = listed.get(repr(identity(element)))
        last = place if place is not None else last
        rank.append((last if place is None else place, position if place is None else -1))
    result[field] = [element for _, element in sorted(zip(rank, elements, strict=True), key=lambda pair: pair[0])]


def _clean(value: Any) -> Any:
    """Drop directives and nulls from a value that is taken whole."""
    if isinstance(value, Mapping):
        return {k: _clean(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
