"""How large the nodes are and what labels they carry, from a watch that keeps nothing else of them.

It needs the permission to list and watch nodes. Without it nothing is known of them, which is reported once in the log
and asked again every few minutes; whoever uses this goes on without bounds.
"""

import asyncio
import random
from collections.abc import Mapping

from kubetide.api.objects.capacity import UNKNOWN, Capacity, capacity_of
from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.meta import ApiObject, ObjectKey, TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Forbidden
from kubetide.log import get_logger

log = get_logger("nodes")

FORBIDDEN_SECONDS = 300.0
UNAVAILABLE_SECONDS = 15.0
"""How long until the server is asked again."""


class _Status(ApiObject, frozen=True, kw_only=True, gc=False):
    capacity: ResourceList | None = None


class _SizedNode(TypedObject, frozen=True, kw_only=True, gc=False):
    status: _Status = _Status()


_NODES = Resource("", "v1", "nodes", "Node", _SizedNode, namespaced=False)


class NodeSizes:
    """The capacity of all nodes as last seen."""

    def __init__(self, client: Client, *, clock: Clock, rng: random.Random | None = None) -> None:
        self._client = client
        self._informer: Informer[_SizedNode] = Informer(client, _NODES, clock=clock, rng=rng)
        self._informer.add_handler(self._on_change)
        self._capacity: Capacity | None = None
        self._asked = asyncio.Event()

    @property
    def capacity(self) -> Capacity:
        """What the nodes have; made anew only when that changed."""
        if not self._informer.has_synced:
            return UNKNOWN
        if self._capacity is None:
            self._capacity = Capacity(
                {node.metadata.name: capacity_of(node.status.capacity) for node in self._informer.store}
            )
        return self._capacity

    def labels(self, node: str) -> Mapping[str, str] | None:
        """Return the labels of a node; None when it is not known."""
        found = self._informer.store.get(ObjectKey("", node)) if self._informer.has_synced else None
        return None if found is None else found.metadata.labels or {}

    @property
    def has_synced(self) -> bool:
        """Whether the nodes are known, or the server has refused to list them."""
        return self._asked.is_set()

    async def wait_synced(self) -> None:
        """Wait until the nodes are known, or the server has refused to list them."""
        await self._asked.wait()

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        await self._wait_for_permission()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name=self._informer.name)
            await self._informer.wait_synced()
            self._asked.set()

    async def _wait_for_permission(self) -> None:
        said = False
        while True:
            try:
                await self._client.request("GET", _NODES.path(), query={"limit": "1"})
                return
            except KubetideError as error:
                if not said:
                    said = True
                    log.info("sizes of nodes are unknown, usage is not checked against them", error=str(error))
                self._asked.set()
                delay = FORBIDDEN_SECONDS if isinstance(error, Forbidden) else UNAVAILABLE_SECONDS
            await asyncio.sleep(delay)

    def _on_change(self, old: _SizedNode | None, new: _SizedNode | None) -> None:
        # Nodes report every few minutes that they are alive; their size hardly ever changes.
        if old is None or new is None or old.status != new.status:
            self._capacity = None
