"""Which fields two versions of an object differ in, for people: a path, what was there, what comes.

Items of lists are told apart by their name (`name`, `containerName`, `type`), as a reader tells them apart, else by
position. Fields that change with every write and say nothing are left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kubetide.api.values.quantity import readable

_NAMES = ("containerName", "name", "type")
_NOISE = frozenset({"lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "managedFields", "resourceVersion"})
_IDENTITY = frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace"})
"""What every object has and whoever is told of the object knows already."""


class FieldChange(NamedTuple):
    """One field; None where it is not there."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = (_shown(self.path, value) for value in (self.before, self.after))
        return f"{self.path} {before} → {after}".lstrip()


def field_changes(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Yield what differs, leaf by leaf, in the order of the newer version."""
    if before == after:
        return
    old, new = _members(before), _members(after)
    if old is None and new is None:
        yield FieldChange(path, before, after)
        return
    if (old is None and before is not None) or (new is None and after is not None):
        yield FieldChange(path, before, after)
        return
    old, new = old or {}, new or {}
    for key in dict.fromkeys((*new, *old)):
        place = f"{path}.{key}" if path else key
        if key not in _NOISE and place not in _IDENTITY:
            yield from field_changes(old.get(key), new.get(key), place)


def _members(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return {_name(item, number): item for number, item in enumerate(value)}
    return None


def _name(item: Mapping[str, Any], number: int) -> str:
    return next((str(item[name]) for name in _NAMES if isinstance(item.get(name), str)), str(number))


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "none"
    text = readable(path, value) if isinstance(value, str) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    return text if len(text) <= 80 else f"{text[:79]}…"
