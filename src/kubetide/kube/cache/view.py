"""Several caches as one: a view of the cluster that is synced once all of them are, and follows with all of them."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kubetide.api.values.shard_selector import ShardSelector


class Cache(Protocol):
    """A local copy of a part of the cluster: an informer, or a view over several."""

    @property
    def has_synced(self) -> bool:
        """Whether it has been filled once."""
        ...

    async def wait_synced(self) -> None:
        """Wait until it has been filled once."""
        ...

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        ...


class Selectable(Protocol):
    """A cache of the part of a cluster that a shard selector names, which may become another part."""

    def select(self, shard: ShardSelector) -> None:
        """Hold this part from now on; what left it is gone at once, what came to it once the cache is synced."""
        ...

    async def wait_synced(self) -> None:
        """Wait until the part is complete."""
        ...


class CacheView:
    """A cache over others: nothing is decided before all of them are synced."""

    caches: Sequence[Cache] = ()

    @property
    def has_synced(self) -> bool:
        """Whether all caches are synced."""
        return all(cache.has_synced for cache in self.caches)

    async def wait_synced(self) -> None:
        """Wait until all caches are synced."""
        for cache in self.caches:
            await cache.wait_synced()

    async def run(self) -> None:
        """Keep the caches fresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=getattr(cache, "name", type(cache).__name__))
