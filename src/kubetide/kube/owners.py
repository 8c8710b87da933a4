"""From a pod's owner up to the controller that a person would name: the topmost well-known or scalable one.

The walk starts at a key, remembers it if its kind is well-known or answers on a scale subresource, and goes on to
the controlling owner until there is none; the last key remembered is the answer. Well-known kinds are read from
local stores (or by a GET where there is no store), all others by their scale object, whose answers are kept
(`cache.lookups`): they are the same for every pod of a workload.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kubetide.api.objects.meta import ObjectKey, ObjectMeta, TypedObject, controller_of
from kubetide.api.objects.scheme import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubetide.api.values.codec import convert
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.lookups import Lookups
from kubetide.kube.cache.store import Store
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.scale import ScaleClient

WELL_KNOWN: Mapping[str, Resource[Any]] = {
    each.kind: each
    for each in (
        DEPLOYMENTS,
        REPLICA_SETS,
        STATEFUL_SETS,
        DAEMON_SETS,
        JOBS,
        CRON_JOBS,
        REPLICATION_CONTROLLERS,
    )
}
REFRESH_SECONDS = 7.0


class OwnerNotFound(KubetideError):
    """An object that another one names as its owner is not there."""


class InvalidOwner(KubetideError):
    """The chain of owners cannot be followed: a node in it, or a circle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerKey:
    """Names a controller as owner references and target references do."""

    namespace: str
    kind: str
    name: str
    api_version: str = ""

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind} {self.namespace}/{self.name}"


class OwnerChain:
    """Finds the topmost controller, with a memory of the scale objects it asked for."""

    def __init__(
        self,
        client: Client,
        scales: ScaleClient,
        *,
        clock: Clock,
        stores: Mapping[str, Store[Any]] | None = None,
        freshness: timedelta = timedelta(minutes=10),
        lifetime: timedelta = timedelta(hours=1),
        rng: random.Random | None = None,
    ) -> None:
        self.name = "owners"
        self._client = client
        self._scales = scales
        self._clock = clock
        self._stores = dict(stores or {})
        self._lookups: Lookups[ControllerKey, ObjectMeta | KubetideError | None] = Lookups(
            freshness=freshness.total_seconds(),
            lifetime=lifetime.total_seconds(),
            jitter=1.0,
            rng=rng or client.rng,
        )

    async def topmost(self, key: ControllerKey) -> ControllerKey | None:
        """Return the topmost well-known or scalable controller above `key`, or None if there is none."""
        visited = {key}
        remembered: ControllerKey | None = None
        current = key
        while True:
            meta = await self._metadata(current)
            if meta is None:
                return remembered
            remembered = current
            owner = controller_of(meta)
            if owner is None:
                return remembered
            current = ControllerKey(
                namespace=current.namespace, kind=owner.kind, name=owner.name, api_version=owner.api_version
            )
            if current in visited:
                raise InvalidOwner(f"the owners of {key} form a circle at {current}")
            visited.add(current)

    async def refresh(self) -> None:
        """Ask again for every scale object whose answer is no longer fresh; forget those nobody asked for."""
        for key in self._lookups.due(self._clock.monotonic()):
            answer = await self._ask(key)
            self._lookups.refreshed(key, answer, self._clock.monotonic())

    async def run(self) -> None:
        """Keep the answers fresh until cancelled. Without it they are renewed when they are next needed."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self.refresh()

    def ready(self) -> bool:
        """Answers are fetched when needed."""
        return True

    def healthy(self) -> bool:
        """A server that is away is no reason to restart."""
        return True

    async def _metadata(self, key: ControllerKey) -> ObjectMeta | None:
        """Return the metadata that names the owner of `key`; None where the walk ends without counting `key`."""
        if key.kind == "Node":
            raise InvalidOwner("node is not a valid owner")
        if key.kind in WELL_KNOWN:
            return await self._well_known(key)
        now = self._clock.monotonic()
        known, answer = self._lookups.get(key, now)
        if not known:
            answer = await self._ask(key)
            self._lookups.put(key, answer, self._clock.monotonic())
        if isinstance(answer, KubetideError):
            raise answer.with_traceback(None)
        return answer

    async def _well_known(self, key: ControllerKey) -> ObjectMeta:
        store = self._stores.get(key.kind)
        if store is not None:
            found: TypedObject | None = store.get(ObjectKey(key.namespace, key.name))
            if found is None:
                raise OwnerNotFound(f"{key.kind} {key.namespace}/{key.name} does not exist")
            return found.metadata
        try:
            read: TypedObject = await self._client.get(WELL_KNOWN[key.kind], key.name, namespace=key.namespace)
        except NotFound as error:
            raise OwnerNotFound(f"{key.kind} {key.namespace}/{key.name} does not exist") from error
        return read.metadata

    async def _ask(self, key: ControllerKey) -> ObjectMeta | KubetideError | None:
        try:
            _, raw = await self._scales.get_raw(key.namespace, key)
            return convert(raw.get("metadata") or {}, ObjectMeta, what=str(key))
        except NotFound:
            return None
        except KubetideError as error:
            return error
