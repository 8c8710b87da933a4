"""The shard of a resource that a cache holds: all of it, a fixed part, or one that changes with what is owned."""

import asyncio

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.shard_selector import ShardSelector
from kubetide.kube.client.decoding import Foreign, identify, uid_of


class Selection:
    """What belongs into a cache, and who filters."""

    def __init__(self, shard: ShardSelector | None) -> None:
        self.shard = shard
        self.text, self.query = _texts(shard)
        """What is selected, and what of it the server is asked for."""
        self.by_server: bool | None = None
        """Whether the server filters by shard; None before the first list, or without a shard."""
        self._something = asyncio.Event()
        self._note()

    @property
    def is_empty(self) -> bool:
        """Whether nothing can match, so that nobody need ask."""
        return not self._something.is_set()

    def is_partial(self) -> bool:
        """Return whether the cache holds less than there is."""
        return self.shard is not None

    async def until_something(self) -> None:
        """Wait until there is something to list."""
        await self._something.wait()

    def change(self, shard: ShardSelector) -> bool:
        """Select another shard; return whether what was selected before covers it."""
        covered = self.shard is None or self.shard.covers(shard)
        self.shard, (self.text, self.query) = shard, _texts(shard)
        self._note()
        return covered

    def learn(self, *, filters: bool) -> bool:
        """Note whether the server filtered a list; return whether that is news."""
        if self.shard is None or self.by_server is filters:
            return False
        self.by_server = filters
        return True

    def leaves_out(self, item: object) -> bool:
        """Return whether an object does not belong into the cache, whatever the server does with the selector."""
        return self.shard is not None and self._is_foreign(uid_of(item), identify(item)[0])

    def foreign(self) -> Foreign | None:
        """Return how to tell by uid and key what is of another shard; None where all that comes is ours."""
        return None if self.shard is None or self.by_server else self._is_foreign

    def _is_foreign(self, uid: str, key: ObjectKey) -> bool:
        return self.shard is not None and not self.shard.matches(uid, key.namespace, key.name)

    def _note(self) -> None:
        if self.shard is None or self.shard.ranges:
            self._something.set()
        else:
            self._something.clear()


def _texts(shard: ShardSelector | None) -> tuple[str, str]:
    return ("", "") if shard is None else (str(shard), shard.query)
