"""What even a bare API server needs somebody to do: empty namespaces that go away, collect orphans, forget old events.

Without the first two, `kubectl delete` would wait for ever. Nothing else runs: no workload gets pods, no pod gets a
node.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from kubetide import crds
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.strategy import CRDS
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.expiry import EVENT_TTL, EventExpiry
from kubetide.embedded.sim.controllers.garbage import Garbage
from kubetide.embedded.sim.controllers.namespaces import Namespaces
from kubetide.embedded.sim.world import World
from kubetide.kube.control.manager import running


@asynccontextmanager
async def housekeeping(api: ApiServer, *, event_ttl: timedelta = EVENT_TTL) -> AsyncIterator[None]:
    """Install kubetide's custom resources and keep house while the context lasts."""
    for definition in crds.load_all():
        if api.store.get(CRDS, StoreKey("", definition["metadata"]["name"])) is None:
            api.insert(definition)

    async def send(request: Request) -> Answer:
        answer = await api.handle(request)
        if not isinstance(answer, Answer):
            raise TypeError("housekeeping opened a watch")
        return answer

    world = World(api.store, api.clock, send, Random(0))
    async with running(Namespaces(world), Garbage(world), EventExpiry(world, event_ttl)):
        yield
