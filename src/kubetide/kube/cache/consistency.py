"""Does the cache still equal the server's collection? Finds what no error of a stream reports.

A server that was restored from an older backup goes on as if nothing had happened: nobody sends the deletion of objects
that the backup does not have, and the copy would hold them for ever. Three signs lead to a new list:

- its resource version went back: no server counts backwards unless it has lost its past;
- it does not find an object that the copy holds, and still holds once a deletion would have arrived;
- it counts another number of objects than the copy had at the same version.

A list of one object shows version and count of the whole collection (`remainingItemCount`), so a check costs the same
for ten objects and a hundred thousand. It runs now and then, and at once when a change, a bookmark or a 404 gives rise
to doubt. With a selector servers do not count; then the other two signs have to do.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar
from urllib.parse import unquote

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import Resource
from kubetide.api.values.codec import RawList, decode
from kubetide.errors import KubetideError
from kubetide.kube.cache.store import Store
from kubetide.kube.cache.versions import Versions, went_back
from kubetide.kube.client.client import Client
from kubetide.log import get_logger

T = TypeVar("T")

SETTLE_SECONDS = 10.0
"""How long a change may be on its way before its absence means anything."""
JITTER = (0.8, 1.2)
MOST_REPORTED = 16
"""Objects reported as missing that are looked up in one check; one that is really gone is enough."""

log = get_logger("informer")


@dataclass(frozen=True, slots=True)
class Tip:
    """What a list of one object shows of the whole collection; without a count where the server does not say."""

    resource_version: str
    count: int | None


class Trail:
    """How many objects the copy held at each version while a check was under way."""

    def __init__(self, version: str, count: int) -> None:
        self._steps = [(version, count)]

    def note(self, version: str, count: int) -> None:
        """Note the count after a change."""
        self._steps.append((version, count))

    def count_at(self, version: str) -> int:
        """Return the count that the copy had when it had seen everything up to `version`."""
        return next((count for seen, count in reversed(self._steps) if not went_back(version, seen)), self._steps[0][1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCollection(Generic[T]):
    """What an informer caches, and from where."""

    client: Client
    resource: Resource[T]
    namespace: str | None
    label_selector: str
    field_selector: str
    partial: Callable[[], bool] = lambda: False
    """Whether only some of the objects are kept, so that their count says nothing."""

    async def tip(self) -> Tip:
        """Ask for the version and the count of all objects."""
        found = await self._first(self.namespace, self.field_selector)
        return Tip(found.resource_version, None) if self.partial() else found

    async def has(self, key: ObjectKey) -> bool:
        """Ask whether an object is in the collection; a list needs no permission beyond the informer's own."""
        named = ",".join(part for part in (self.field_selector, f"metadata.name={key.name}") if part)
        return (await self._first(key.namespace or self.namespace, named)).count != 0

    async def _first(self, namespace: str | None, field_selector: str) -> Tip:
        path = self.resource.path(namespace=namespace)
        query = {"limit": "1", "labelSelector": self.label_selector, "fieldSelector": field_selector}
        response = await self.client.request("GET", path, query={name: text for name, text in query.items() if text})
        found = decode(response.body, RawList, what=path)
        meta, count = found.metadata, len(found.items or ())
        if not meta.continue_:
            return Tip(meta.resource_version, count)
        rest = meta.remaining_item_count
        return Tip(meta.resource_version, None if rest is None else count + rest)

    def key_of(self, path: str) -> ObjectKey | None:
        """Return the key of the object that a path of this resource is about, or None."""
        base = f"{self.resource.base}/"
        if not path.startswith(base):
            return None
        parts = path.removeprefix(base).split("/")
        namespace = ""
        if parts[0] == "namespaces" and self.resource.namespaced and len(parts) > 2:
            namespace, parts = unquote(parts[1]), parts[2:]
        if len(parts) < 2 or parts[0] != self.resource.plural:
            return None
        return ObjectKey(namespace, unquote(parts[1]))


class Consistency(Generic[T]):
    """Compares a copy with the server now and then, and whenever there is doubt."""

    def __init__(
        self,
        collection: CachedCollection[T],
        store: Store[T],
        versions: Versions,
        *,
        interval: timedelta,
        rng: random.Random,
        count: Callable[[], int],
        stream: Callable[[], object],
        relist: Callable[[str], None],
    ) -> None:
        self.trail: Trail | None = None
        self._collection = collection
        self._store = store
        self._versions = versions
        self._interval = interval.total_seconds()
        self._rng = rng
        self._count = count
        self._stream = stream
        self._relist = relist
        self._doubted = asyncio.Event()
        self._missing: dict[ObjectKey, T] = {}
        collection.client.on_not_found(self.heard_not_found)

    def doubt(self) -> None:
        """Check soon."""
        self._doubted.set()

    def heard_not_found(self, path: str) -> None:
        """Check soon if the server does not know an object that the copy holds."""
        key = self._collection.key_of(path)
        held = self._store.get(key) if key is not None else None
        if key is not None and held is not None and len(self._missing) < MOST_REPORTED:
            self._missing[key] = held
            self.doubt()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._wait()
            try:
                problem = await self._find_missing() or await self._compare()
            except (KubetideError, OSError) as error:
                log.debug("cannot check the local copy", resource=str(self._collection.resource), error=str(error))
                continue
            if problem:
                self._relist(problem)

    async def _wait(self) -> None:
        """Wait for the next check, or for doubt and then for what is on its way."""
        try:
            async with asyncio.timeout(self._interval * self._rng.uniform(*JITTER) or None):
                await self._doubted.wait()
                await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            pass
        self._doubted.clear()

    async def _find_missing(self) -> str:
        """Return which object that was reported missing is indeed not there; an object that changed since is."""
        reported, self._missing = self._missing, {}
        for key, held in reported.items():
            if self._store.get(key) is held and not await self._collection.has(key):
                return f"{key} is not on the server"
        return ""

    async def _compare(self) -> str:
        """Return how the copy differs from the server; nothing is said while no stream keeps it fresh."""
        stream, seen = self._stream(), self._versions.latest
        if stream is None:
            return ""
        trail = self.trail = Trail(seen, self._count())
        try:
            tip = await self._collection.tip()
            if went_back(tip.resource_version, seen):
                return f"the resource version went back from {seen} to {tip.resource_version}"
            if tip.count is None:
                return ""
            await asyncio.sleep(SETTLE_SECONDS)
            held = trail.count_at(tip.resource_version)
            if self._stream() is stream and held != tip.count:
                return f"{held} objects are known, the server has {tip.count}"
            return ""
        finally:
            self.trail = None
