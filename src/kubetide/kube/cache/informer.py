"""List and watch one resource into a store, and never lose or invent an object on the way.

What a stream may do wrong, and what follows:

- it ends or breaks: it is taken up a little before the last change seen (`cache.versions`), and what comes twice is
  recognised by its version. Streams that break again and again without bringing news lead to a new list.
- it repeats or mixes up changes: each key takes only versions newer than the one it has, deletions included
  (`cache.versions`).
- it sends what is no event, or an error such as 410: the objects are listed again.
- an object does not fit its struct: the last good one stays in force, and the fault is logged and counted.
- it brings what is not of our shard, because the server knows no shards: that is dropped by a look at its metadata.
- it does not report what a restore from a backup took away: the cache is compared with the server now and then
  (`cache.consistency`), and listed again where it differs.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Generic, TypeVar

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import Resource
from kubetide.api.values.shard_selector import ShardSelector
from kubetide.clock import Clock
from kubetide.errors import DecodeError, KubetideError
from kubetide.kube.cache.consistency import CachedCollection, Consistency
from kubetide.kube.cache.handlers import Handler, Handlers
from kubetide.kube.cache.selection import Selection
from kubetide.kube.cache.store import IndexFunction, Store
from kubetide.kube.cache.versions import Versions, newer, went_back
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import (
    BOOKMARK,
    DELETED,
    MODIFIED,
    Elsewhere,
    Listing,
    Rejected,
    WatchEvent,
    identify,
    uid_of,
    version_of,
)
from kubetide.kube.client.errors import ApiError, Gone, pause_after
from kubetide.kube.pacing import Backoff, Retry
from kubetide.log import get_logger

T = TypeVar("T")

EVENTS_PER_YIELD = 64  # a flood of changes must not starve other tasks
WATCH_SECONDS = (300, 600)
ATTEMPTS_BEFORE_RELIST = 3
# A stream that is alive and silent for this long has nothing left to deliver.
QUIET_SECONDS = 10.0

log = get_logger("informer")


class Informer(Generic[T]):
    """A cache of one resource. Handlers are called with (old, new): None means absent."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        clock: Clock,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        shard: ShardSelector | None = None,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        resync: timedelta | None = None,
        slim: Callable[[T], T] | None = None,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.resource = resource
        self.store: Store[T] = Store(indexes)
        self.rejected: dict[ObjectKey, DecodeError] = {}
        self.relists = 0
        self.failure: Exception | None = None  # why the server could not be listed or followed last
        self._client = client
        self._clock = clock
        selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._where: dict[str, Any] = {"namespace": namespace, **selectors}
        self._resync = resync
        self._slim = slim
        self._rng = rng or client.rng
        self._retry = Retry(backoff or Backoff(), self._rng)
        self._versions = Versions()
        self._written: dict[str, WatchEvent[T]] = {}  # by version, until the stream has brought it too
        self._fruitless = 0
        self._only_repeats = False
        self._synced = asyncio.Event()
        self._answered = asyncio.Event()
        self._last_contact: float | None = None
        self._selection = Selection(shard)
        self._log = log.bind(resource=str(resource), namespace=namespace or "")
        self._handlers: Handlers[T] = Handlers(self._log)
        self._stream: asyncio.Timeout | None = None  # of the stream that is open: ending it early leads to a new list
        self._reselected = False  # the stream that is open is of another shard
        self._wrong = False  # found to differ from the server, so that equal versions prove nothing
        self._consistency = Consistency(
            CachedCollection(client=client, resource=resource, **self._where, partial=self._selection.is_partial),
            self.store,
            self._versions,
            interval=client.cache_check,
            rng=self._rng,
            count=self._count,
            stream=lambda: self._stream,
            relist=self._start_over,
        )
        client.announce(self)

    @property
    def name(self) -> str:
        """What the manager calls it."""
        return f"informer/{self.resource}"

    @property
    def server_shards(self) -> bool | None:
        """Whether the server filters by shard; None before the first list, or without a shard."""
        return self._selection.by_server

    @property
    def has_synced(self) -> bool:
        """Whether the store was complete at least once, since it holds what it holds now."""
        return self._synced.is_set()

    @property
    def latest_version(self) -> str:
        """The newest version that the server has delivered, bookmarks included; empty before the first list."""
        return self._versions.latest

    async def wait_synced(self) -> None:
        """Wait until the store is complete."""
        await self._synced.wait()

    async def wait_answered(self) -> None:
        """Wait until the store is complete, or `failure` has the reason why not."""
        await self._answered.wait()

    def staleness(self) -> timedelta | None:
        """Return how long ago the server last said anything; None before the first list."""
        last = self._last_contact
        return None if last is None else timedelta(seconds=self._clock.monotonic() - last)

    def ready(self) -> bool:
        """Whether there is something to decide on."""
        return self.has_synced

    def healthy(self) -> bool:
        """An informer that cannot reach the server keeps trying; killing it would not help."""
        return True

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler(old, new)` for every change; for what is already there, at once."""
        self._handlers.add(handler, self.store.values())

    def written(self, item: T) -> None:
        """Take what the server answered to a write of our own, which the stream will bring again and nobody needs."""
        key, version = identify(item)
        current = self.store.get(key)
        if current is None or uid_of(current) != uid_of(item) or not went_back(version_of(current), version):
            return
        self._written[version] = WatchEvent(MODIFIED, item, key, version)
        self._put(key, item)

    def select(self, shard: ShardSelector) -> None:
        """Hold this shard from now on: what left it is dropped at once, for what came to it all is listed again."""
        if shard == self._selection.shard:
            return
        if not self._selection.change(shard):
            self._synced.clear()
        for key in [identify(item)[0] for item in self.store.values() if self._selection.leaves_out(item)]:
            self._remove(key)
        self._reselected = True
        self._end_stream()

    async def run(self) -> None:
        """Follow the resource until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._resync is not None:
                group.create_task(self._handlers.repeat(self.store.values, every=self._resync))
            group.create_task(self._consistency.run())
            await self._follow()

    async def _follow(self) -> None:
        version = ""
        while True:
            try:
                if self._selection.is_empty:
                    version = ""
                    self._synced.set()  # of nothing the store is complete
                    await self._selection.until_something()
                if not version:
                    version = await self._relist()
                version = await self._watch_from(version)
            except Gone:
                self._log.info("resource version is too old, listing again")
                version = ""
                delay = self._retry.next_delay()  # once is normal; time and again must not become a tight loop
                await asyncio.sleep(delay if self._retry.failures > 1 else 0.0)
            except (KubetideError, OSError) as error:
                self.failure = error
                self._answered.set()
                version = self._resume_point(error)
                delay = self._retry.next_delay()
                self._log.warning(
                    "watch failed", error=str(error), kind=type(error).__name__, retry_seconds=round(delay, 3)
                )
                await asyncio.sleep(pause_after(error, at_least=delay))

    async def _watch_from(self, version: str) -> str:
        """Follow a stream to its end and return where to go on; nowhere if it was ended to list again."""
        if not self.has_synced or self._selection.is_empty:
            return ""  # another shard was selected meanwhile
        self._reselected = False
        try:
            # A timeout without a time: `_start_over` sets it to now, which ends the stream from the outside without
            # cancelling the task itself.
            async with asyncio.timeout(None) as self._stream:
                await self._watch(version)
        except TimeoutError:
            if not (self._wrong or self._reselected):
                raise
        finally:
            self._stream = None
        return self._resume_point(None)

    def _start_over(self, reason: str) -> None:
        """List again, because the cache was found to be wrong."""
        self._log.warning("cache differs from the server, listing again", reason=reason)
        self._wrong = True
        self._end_stream()

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.reschedule(asyncio.get_running_loop().time())

    def _count(self) -> int:
        """Return how many objects of the server are known, those that cannot be read included."""
        return len(self.store) + sum(key not in self.store for key in self.rejected)

    def _resume_point(self, error: Exception | None) -> str:
        """Return the version to go on from after a stream; empty to list again.

        A line that cannot be read would be sent again; a server that refuses time and again may have lost our
        version for good (restored from a backup); streams that only repeat what is known might hide a change.
        All three, and a cache that was found to be wrong, are healed by a list only.
        """
        self._fruitless = self._fruitless + 1 if self._only_repeats else 0
        self._only_repeats = False
        refused = isinstance(error, ApiError) and self._retry.failures >= ATTEMPTS_BEFORE_RELIST
        hopeless = isinstance(error, DecodeError) or refused or self._fruitless >= ATTEMPTS_BEFORE_RELIST
        return "" if hopeless or self._wrong or not self.has_synced else self._versions.resume

    async def _relist(self) -> str:
        selection, text = self._selection, self._selection.text
        listing = await self._client.list(
            self.resource, **self._where, shard_selector=selection.query, foreign=selection.foreign()
        )
        if selection.learn(filters=bool(listing.shard) and listing.shard == text):
            self._log.info("shard is filtered", by_server=selection.by_server)
        # Replacing may give way to other tasks. Nobody sees a half-filled store as synced: the event is set after it,
        # and a later list only ever moves a complete store to another complete one, key by key.
        await self._replace(listing)
        if text != selection.text:
            return "" if selection.is_empty else await self._relist()
        self._wrong = False
        self.relists += 1
        self._fruitless = 0
        self._touch()
        self.failure = None
        self._synced.set()
        self._answered.set()
        return listing.resource_version

    async def _replace(self, listing: Listing[T]) -> None:
        """Make the store equal to the list, calling handlers only for what changed.

        A server that has lost its past gives versions out a second time: then every object is taken as it comes.
        """
        trusted = not self._wrong and not went_back(listing.resource_version, self._versions.latest)
        self._versions.start(listing.resource_version)
        self._written.clear()
        seen: set[ObjectKey] = {each.key for each in listing.rejected}
        self.rejected = {}
        for each in listing.rejected:
            self._reject(each.key, each.error)
        for count, item in enumerate(listing.items):
            if count % 500 == 499:
                await asyncio.sleep(0)
            key, version = identify(item)
            seen.add(key)
            old = self.store.get(key)
            # Equal versions are equal objects: handlers hear of a list only what really changed.
            if trusted and old is not None and version and version_of(old) == version:
                continue
            self._put(key, item)
        for key in [key for key in self.store.keys() if key not in seen]:  # noqa: SIM118 - a Store is no dict
            self._remove(key)

    async def _watch(self, version: str) -> None:
        """Apply changes until the stream ends."""
        stream = self._client.watch_items(
            self.resource,
            **self._where,
            resource_version=version,
            shard_selector=self._selection.query,
            timeout_seconds=self._rng.randint(*WATCH_SECONDS),
            expected=self._written,
            foreign=self._selection.foreign(),
        )
        # A stream is taken up a little before the newest change we know, so its first lines repeat the past. While it
        # is `behind`, it has not yet reached what was known when it was opened, and its silence vouches for nothing.
        known = self._versions.latest
        behind = newer(known, version)
        before = self._versions.progress
        count, changes, last_line = 0, 0, self._clock.monotonic()
        try:
            async with aclosing(stream):
                async for event in stream:
                    self._apply(event)
                    changes += event.type != BOOKMARK and not isinstance(event, Elsewhere)
                    behind = behind and newer(known, event.resource_version)
                    last_line = self._touch()
                    self.failure = None
                    self._retry.succeeded()
                    count += 1
                    if count % EVENTS_PER_YIELD == 0:
                        await asyncio.sleep(0)
        finally:
            # Alive, caught up and silent: whatever happened up to `latest` has arrived, so the next stream may start
            # there. Without the silence, a change with an older version could still be on its way.
            if not behind and self._clock.monotonic() - last_line >= QUIET_SECONDS:
                self._versions.vouch(self._versions.latest)
            self._only_repeats = changes > 0 and self._versions.progress == before
        self._touch()
        if count == 0 or self._only_repeats:
            # A server that ends every stream at once, or after what is known, would otherwise be asked in a tight loop.
            await asyncio.sleep(self._rng.uniform(0.5, 1.0))

    def _apply(self, event: WatchEvent[T] | Rejected | Elsewhere) -> None:
        if isinstance(event, Elsewhere):
            return
        if event.type == BOOKMARK:
            if went_back(event.resource_version, self._versions.latest):
                self._consistency.doubt()
            self._versions.vouch(event.resource_version)
            return
        if self._written and self._written.pop(event.resource_version, None) is not None:
            self._versions.repeat(event.resource_version)
            return
        # Each key takes only newer versions, so that a line which is repeated or overtaken cannot bring the past back;
        # for a key that is gone, `Versions` remembers the version of its deletion.
        current = self.store.get(event.key)
        known = version_of(current) if current is not None else ""
        if not self._versions.accept(event.key, event.resource_version, known, deleted=event.type == DELETED):
            if went_back(event.resource_version, self._versions.listed):
                self._consistency.doubt()
            return
        if event.type == DELETED:
            self.rejected.pop(event.key, None)
            self._remove(event.key)
        elif isinstance(event, Rejected):
            self._reject(event.key, event.error)
        else:
            self.rejected.pop(event.key, None)
            self._put(event.key, event.object)
        if self._consistency.trail is not None:
            self._consistency.trail.note(event.resource_version, self._count())

    def _put(self, key: ObjectKey, item: T) -> None:
        # Whatever the server does with the selector, what is kept is right; uid and namespace never change.
        if self._selection.leaves_out(item):
            return
        try:
            item = self._slim(item) if self._slim is not None else item
            old = self.store.put(key, item)
        except Exception as error:  # noqa: BLE001 - one odd object must not end the cache of all others
            self._reject(key, DecodeError(f"cannot be indexed: {error!r}", subject=f"{self.resource} {key}"))
            return
        self._handlers.notify(old, item)

    def _remove(self, key: ObjectKey) -> None:
        old = self.store.remove(key)
        if old is not None:
            self._handlers.notify(old, None)

    def _reject(self, key: ObjectKey, error: DecodeError) -> None:
        self.rejected[key] = error
        self._log.warning("object cannot be read, keeping the last good one", error=str(error))

    def _touch(self) -> float:
        self._last_contact = self._clock.monotonic()
        return self._last_contact
