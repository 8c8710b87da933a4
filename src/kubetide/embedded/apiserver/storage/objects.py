"""The versioned store: raw objects, one revision counter, and the history that watches read.

Every change gets the next revision. Each resource keeps its recent changes in an append-only log; a watch is a
cursor into that log, so that one change costs one append however many watch it, and a reader that falls behind
the window loses its place (410 Gone) instead of holding memory. Stored objects are never changed in place. Where
changes are kept on disk they are written there first: what cannot be made durable does not happen.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from kubetide.embedded.apiserver.rest.status import Raw, gone

Change = Literal["ADDED", "MODIFIED", "DELETED"]

DEFAULT_WINDOW = 5000
_LINES_KEPT = 512
"""Changes of which the line is kept for the watches that have not read it yet."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_key = attrgetter("key")


class StoreKey(NamedTuple):
    """Where an object lies inside its resource. Cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str


class ResourceKey(NamedTuple):
    """Which resource: API group and plural name, whatever the version."""

    group: str
    plural: str


class Entry:
    """One object at one revision, with its encoded forms kept once somebody asked for them.

    An entry that is no longer the newest is kept for watches and old lists, which need its encoded form at most: its
    object, several times as large, is let go of and made again in the rare case that somebody asks for it.
    """

    __slots__ = ("_encoded", "_views", "key", "obj", "revision")

    def __init__(self, key: StoreKey, obj: Raw, revision: int) -> None:
        self.key = key
        self.obj: Raw = obj
        self.revision = revision
        self._encoded: bytes | None = None
        self._views: dict[str, bytes] | None = None

    @property
    def encoded(self) -> bytes:
        """The stored object as JSON."""
        if self._encoded is None:
            self._encoded = _encode(self.obj)
        return self._encoded

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not set: the object, once it was let go of.
        if name != "obj" or self._encoded is None:
            raise AttributeError(name)
        self.obj = _decode(self._encoded)
        return self.obj

    def fold(self) -> None:
        """Let go of the object, once, if it can be made again."""
        if self._encoded is not None:
            del self.obj

    def view(self, name: str, render: Callable[[Raw], Raw]) -> bytes:
        """The object as JSON after `render`, which is called once per `name`."""
        if self._views is None:
            self._views = {}
        found = self._views.get(name)
        if found is None:
            found = self._views[name] = _encode(render(self.copy()))
        return found

    def forget_views(self) -> None:
        """Let every view be made anew when it is asked for."""
        self._views = None

    def has_view(self, name: str) -> bool:
        """Whether a view is already made."""
        return self._views is not None and name in self._views

    def prime(self, name: str, obj: Raw) -> None:
        """Keep a view that was made elsewhere."""
        if self._views is None:
            self._views = {}
        self._views[name] = _encode(obj)

    def copy(self) -> Raw:
        """Return a deep copy of the object that may be changed freely."""
        result: Raw = _decode(self.encoded)
        return result


class LogEvent(msgspec.Struct):
    """One change: what it is now (or was last, if deleted) and what it was before."""

    revision: int
    change: Change
    entry: Entry
    previous: Entry | None
    _line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The change as plain watches show it, made once for all of them."""
        if self._line is None:
            self._line = watch_line(self.change, self.entry.encoded)
        return self._line

    def forget_line(self) -> None:
        """Let the line be made anew in the rare case that it is asked for."""
        self._line = None


def watch_line(change: str, body: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"%s","object":%s}' % (change.encode(), body)


class EventLog:
    """The recent changes of one resource, addressed by an absolute position that only grows."""

    def __init__(self, window: int, revision: int) -> None:
        self._window = window
        self._events: list[LogEvent] = []
        self._first = 0
        self.forgotten = revision
        """Changes up to this revision are no longer known."""
        self._listeners: dict[int, Callable[[], None]] = {}

    def append(self, event: LogEvent) -> None:
        self._events.append(event)
        if len(self._events) > _LINES_KEPT:
            self._events[-1 - _LINES_KEPT].forget_line()
        # Trimming half of a double window at once keeps the cost per change constant.
        if len(self._events) > 2 * self._window:
            surplus = len(self._events) - self._window
            self.forgotten = self._events[surplus - 1].revision
            del self._events[:surplus]
            self._first += surplus

    def compact(self, revision: int) -> None:
        """Forget all changes up to now; a reader that has not seen them is Gone."""
        self._first += len(self._events)
        self._events.clear()
        self.forgotten = revision
        self.notify()

    def notify(self) -> None:
        """Wake every reader that waits; a reader that is busy will look again by itself."""
        for wake in tuple(self._listeners.values()):
            wake()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each change until the returned function is called."""
        token = id(wake)
        self._listeners[token] = wake

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    def __len__(self) -> int:
        return len(self._events)

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._first + len(self._events)

    def position_after(self, revision: int) -> int:
        """Return the position of the first change newer than `revision`."""
        if revision < self.forgotten:
            raise gone(f"too old resource version: {revision} ({self.forgotten})")
        return self._first + bisect_right(self._events, revision, key=lambda event: event.revision)

    def read(self, position: int, limit: int = 1000) -> list[LogEvent]:
        """Return up to `limit` changes from `position` on; a position that fell out of the window is Gone."""
        if position < self._first:
            raise gone("the watch was too slow and its events are no longer kept")
        start = position - self._first
        return self._events[start : start + limit]

    def since(self, revision: int) -> Iterator[LogEvent]:
        """Yield the changes newer than `revision`, newest first."""
        start = self.position_after(revision) - self._first
        return reversed(self._events[start:])


class Collection:
    """All objects of one resource, in key order, and their log."""

    def __init__(self, window: int, revision: int) -> None:
        self._spaces: dict[str, dict[str, Entry]] = {}
        self._order: dict[str, tuple[list[str], list[Entry]]] = {}
        """Names and entries of a namespace, sorted by name, once somebody asked for them."""
        self._count = 0
        self.log = EventLog(window, revision)

    def __len__(self) -> int:
        return self._count

    def get(self, key: StoreKey) -> Entry | None:
        space = self._spaces.get(key.namespace)
        return space.get(key.name) if space is not None else None

    def entries(self, namespace: str | None = None) -> list[Entry]:
        """Return the entries of one namespace, or of all, sorted by key. The list must not be changed."""
        if namespace is not None:
            found = self._order.get(namespace)
            if found is None:
                space = self._spaces.get(namespace)
                if not space:
                    return []
                names = sorted(space)
                found = self._order[namespace] = names, [space[name] for name in names]
            return found[1]
        if len(self._spaces) == 1:
            return self.entries(next(iter(self._spaces)))
        return [entry for space in sorted(self._spaces) for entry in self.entries(space)]

    def entries_at(self, revision: int, namespace: str | None) -> list[Entry]:
        """Return the entries as they were at `revision`, by undoing the log; Gone if it does not reach back."""
        before: dict[StoreKey, Entry | None] = {}
        for event in self.log.since(revision):
            key = event.entry.key
            if namespace is None or key.namespace == namespace:
                before[key] = event.previous
        present = self.entries(namespace)
        if not before:
            return present
        found = [entry for entry in present if entry.key not in before]
        found += [entry for entry in before.values() if entry is not None]
        return sorted(found, key=_key)

    def put(self, entry: Entry) -> None:
        namespace, name = entry.key
        space = self._spaces.setdefault(namespace, {})
        if name not in space:
            self._count += 1
            self._order.pop(namespace, None)
        elif (order := self._order.get(namespace)) is not None:
            names, entries = order
            entries[bisect_left(names, name)] = entry
        space[name] = entry

    def remove(self, key: StoreKey) -> None:
        space = self._spaces[key.namespace]
        del space[key.name]
        self._count -= 1
        self._order.pop(key.namespace, None)
        if not space:
            del self._spaces[key.namespace]


Listener = Callable[[ResourceKey, LogEvent], None]


class Persistence(Protocol):
    """Where changes are kept so that they outlive the process."""

    @property
    def trouble(self) -> str:
        """Why nothing can be written at the moment; empty if it can."""
        ...

    def write(self, resource: ResourceKey, event: LogEvent, *, derived: bool) -> None:
        """Make a change durable, or raise a StatusError if that cannot be done.

        Derived changes follow from other objects and are made again after a restart: they may be written later.
        """
        ...


class ObjectStore:
    """All resources, and the one counter that orders their changes."""

    def __init__(
        self, *, window: int = DEFAULT_WINDOW, revision: int = 1, persistence: Persistence | None = None
    ) -> None:
        self._window = window
        self._persistence = persistence
        self._floor = revision
        self._collections: dict[ResourceKey, Collection] = {}
        self._listeners: list[tuple[Listener, tuple[ResourceKey, ...]]] = []
        self._concerned: dict[ResourceKey, list[Listener]] = {}
        """The listeners of each resource, in the order in which they came."""
        self.revision = revision

    def listen(self, listener: Listener, *resources: ResourceKey) -> None:
        """Call `listener` with every change, or every change of these resources, before any watch sees it."""
        self._listeners.append((listener, resources))
        self._concerned.clear()

    def collection(self, resource: ResourceKey) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self._window, self._floor)
        return found

    def resources(self) -> list[ResourceKey]:
        """Return every resource that has, or once had, objects."""
        return sorted(self._collections)

    def everything(self) -> Iterator[Raw]:
        """Yield every object of every resource."""
        for resource in self.resources():
            for entry in self.collection(resource).entries():
                yield entry.obj

    def get(self, resource: ResourceKey, key: StoreKey) -> Entry | None:
        collection = self._collections.get(resource)
        return collection.get(key) if collection is not None else None

    @property
    def trouble(self) -> str:
        """Why changes cannot be made durable at the moment; empty if they can, or need not be."""
        return self._persistence.trouble if self._persistence is not None else ""

    def put(self, resource: ResourceKey, key: StoreKey, obj: Raw, *, derived: bool = False) -> Entry:
        """Store `obj` under the next revision, which is also written into it."""
        collection = self.collection(resource)
        previous = collection.get(key)
        revision = self.revision + 1
        metadata: dict[str, Any] = obj["metadata"]
        metadata["resourceVersion"] = str(revision)
        entry = Entry(key, obj, revision)
        event = LogEvent(revision, "ADDED" if previous is None else "MODIFIED", entry, previous)
        self._persist(resource, event, derived=derived)
        self.revision = revision
        collection.put(entry)
        self._record(resource, collection, event)
        if previous is not None:
            previous.fold()
        return entry

    def delete(self, resource: ResourceKey, key: StoreKey, *, last: Raw | None = None, derived: bool = False) -> Entry:
        """Remove an object that is there and return its last state, stamped with the revision of the deletion.

        `last` is that state where the deletion goes along with a last change.
        """
        collection = self.collection(resource)
        previous = collection.get(key)
        if previous is None:
            raise KeyError(key)
        revision = self.revision + 1
        state = last if last is not None else previous.obj
        entry = Entry(key, {**state, "metadata": {**state["metadata"], "resourceVersion": str(revision)}}, revision)
        event = LogEvent(revision, "DELETED", entry, previous)
        self._persist(resource, event, derived=derived)
        self.revision = revision
        collection.remove(key)
        self._record(resource, collection, event)
        previous.fold()
        return entry

    def _persist(self, resource: ResourceKey, event: LogEvent, *, derived: bool) -> None:
        if self._persistence is not None:
            self._persistence.write(resource, event, derived=derived)

    def compact(self) -> None:
        """Forget the history of all changes, as a compaction of etcd does; objects stay."""
        self._floor = self.revision
        for collection in self._collections.values():
            collection.log.compact(self.revision)

    def restore(self, resource: ResourceKey, key: StoreKey, obj: Raw, revision: int) -> None:
        """Put back an object as it was stored before a restart, without a change in the log."""
        self.collection(resource).put(Entry(key, obj, revision))

    def _record(self, resource: ResourceKey, collection: Collection, event: LogEvent) -> None:
        collection.log.append(event)
        concerned = self._concerned.get(resource)
        if concerned is None:
            concerned = [listener for listener, wanted in self._listeners if not wanted or resource in wanted]
            self._concerned[resource] = concerned
        for listener in concerned:
            listener(resource, event)
        collection.log.notify()
