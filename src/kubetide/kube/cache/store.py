"""An indexed cache of objects: what the informer last knew, found by key or by any index.

An index maps an object to the values under which it is found (its node, its owner's uid, each of its labels).
Every value keeps its keys in a dict, so lookups cost what they return and iteration order is stable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from kubetide.api.objects.meta import ObjectKey

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]

NAMESPACE = "namespace"


class Store(Generic[T]):
    """Objects by key, and by the indexes given. Always has the index `namespace`."""

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions: dict[str, IndexFunction[T]] = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {name: {} for name in self._functions}
        self._namespaces: dict[str, dict[ObjectKey, None]] = {}
        self.changes = 0
        """Grows with every change, so that what was looked up can be kept until then."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: ObjectKey) -> T | None:
        """Return the object of that key, or None."""
        return self._objects.get(key)

    def keys(self) -> list[ObjectKey]:
        """Return all keys."""
        return list(self._objects)

    def values(self) -> list[T]:
        """Return all objects."""
        return list(self._objects.values())

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that the index `name` files under `value`."""
        keys = self._namespaces.get(value) if name == NAMESPACE else self._indexes[name].get(value)
        return [self._objects[key] for key in keys] if keys else []

    def in_namespace(self, namespace: str) -> list[T]:
        """Return the objects of one namespace."""
        return self.by_index(NAMESPACE, namespace)

    def index_values(self, name: str) -> list[str]:
        """Return the values under which the index `name` has objects."""
        return list(self._namespaces if name == NAMESPACE else self._indexes[name])

    def put(self, key: ObjectKey, value: T) -> T | None:
        """Keep `value` under `key` and return what it replaces."""
        old = self._objects.get(key)
        # Filed first: an index function that fails leaves the store as it was.
        filed = [tuple(function(value)) for function in self._functions.values()]
        self.changes += 1
        self._objects[key] = value
        if old is None:
            self._namespaces.setdefault(key.namespace, {})[key] = None
        for (name, function), values in zip(self._functions.items(), filed, strict=True):
            before = tuple(function(old)) if old is not None else ()
            # Nearly every change leaves an object where it is filed, in the same order too.
            if values != before:
                index, had, has = self._indexes[name], set(before), set(values)
                for each in had - has:
                    _drop(index, each, key)
                for each in has - had:
                    index.setdefault(each, {})[key] = None
        return old

    def remove(self, key: ObjectKey) -> T | None:
        """Forget the object of that key and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.changes += 1
            self._unfile(key, old)
        return old

    def _unfile(self, key: ObjectKey, old: T) -> None:
        _drop(self._namespaces, key.namespace, key)
        for name, function in self._functions.items():
            for value in set(function(old)):
                _drop(self._indexes[name], value, key)


def _drop(index: dict[str, dict[ObjectKey, None]], value: str, key: ObjectKey) -> None:
    keys = index.get(value)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[value]
