"""The objects of a cluster as one identity may read them, kept up to date by watches.

What was listed once is followed from then on, so that a large cluster is not listed again for every look, and an object
that did not change stays the same object. What cannot be followed is listed each time: usage, a resource that may be
listed but not watched, and anything while its watch is broken; so whatever is wrong is told by the list, as it always
was.
"""

import asyncio
from typing import Any, TypeVar

from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import Listing, Rejected
from kubetide.kube.client.errors import Forbidden, MethodNotAllowed, NotFound
from kubetide.verdicts.cluster_reader import STORED

T = TypeVar("T", bound=TypedObject)

_NEVER = (Forbidden, MethodNotAllowed, NotFound)
"""Whoever is answered so need not ask again in this session."""
_WATCHED = frozenset(str(resource) for resource in STORED.values())


class ClusterCache:
    """Lists resources, and follows those that were listed before."""

    def __init__(self, client: Client, clock: Clock, group: asyncio.TaskGroup) -> None:
        self._client = client
        self._clock = clock
        self._group = group
        self._listed: set[str] = set()
        self._refused: set[str] = set()
        self._followed: dict[str, tuple[Informer[Any], asyncio.Task[None]]] = {}

    async def list(
        self, resource: Resource[T], *, namespace: str | None = None, field_selector: str = ""
    ) -> Listing[T]:
        """Return the objects of a resource; raises as a list does."""
        name = str(resource)
        if name in self._listed and name in _WATCHED and name not in self._refused:
            informer = self._follow(name, resource, namespace, field_selector)
            await informer.wait_answered()
            if informer.has_synced and informer.failure is None:
                return _listing(informer)
            if isinstance(informer.failure, _NEVER):
                self._stop(name)
                self._refused.add(name)
        listing = await self._client.list(resource, namespace=namespace, field_selector=field_selector)
        self._listed.add(name)
        return listing

    def close(self) -> None:
        """Follow nothing any more; whoever lists again begins anew."""
        for name in list(self._followed):
            self._stop(name)
        self._listed.clear()

    def _follow(self, name: str, resource: Resource[T], namespace: str | None, field_selector: str) -> Informer[T]:
        if name not in self._followed:
            informer = Informer(
                self._client, resource, clock=self._clock, namespace=namespace, field_selector=field_selector
            )
            self._followed[name] = informer, _started(self._group, informer)
        return self._followed[name][0]

    def _stop(self, name: str) -> None:
        self._followed.pop(name)[1].cancel()


def _started(group: asyncio.TaskGroup, informer: Informer[Any]) -> asyncio.Task[None]:
    return group.create_task(informer.run(), name=f"dashboard/{informer.resource}")


def _listing(informer: Informer[T]) -> Listing[T]:
    """Return what a cache holds as a list in the server's order."""
    store = informer.store
    items = tuple(item for key in sorted(store.keys()) if (item := store.get(key)) is not None)
    rejected = tuple(Rejected("", key, "", error) for key, error in informer.rejected.items())
    return Listing(items=items, resource_version=informer.latest_version, rejected=rejected)
