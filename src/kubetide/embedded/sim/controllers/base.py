"""What the controllers of the simulated cluster add to the controller frame.

They watch the store itself instead of caches, nobody competes with them for a Lease, and only one thing is a normal
failure: a write that the API server refuses. Any other error is a bug in the simulation and ends it.
"""

from abc import ABC, abstractmethod
from datetime import timedelta

from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.world import PODS, World, key_of
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.reconcile import Result

_DONE = Result()
_RETRY = Result(requeue_after=timedelta(seconds=1))


class SimController(Controller, ABC):
    """Brings objects of one kind to what their spec says."""

    name = "controller"

    def __init__(self, world: World) -> None:
        self.world = world
        keyed: KeyedLoop[StoreKey] = KeyedLoop(
            self.name, self._reconcile, clock=world.clock, stop_grace=timedelta(0), retry_on=()
        )
        self.enqueue = keyed.add
        self.enqueue_after = keyed.add_after
        super().__init__(self.name, clock=world.clock, loops=[keyed])
        self.watch()

    @abstractmethod
    def watch(self) -> None:
        """Subscribe to the changes that matter."""

    @abstractmethod
    async def reconcile(self, key: StoreKey) -> None:
        """Compare what is with what should be, and act."""

    def watch_with_pods(self, resource: ResourceKey) -> None:
        """Reconcile each object of a resource when it changes, and all of a namespace when a pod of it does."""

        def changed(old: Raw | None, new: Raw | None) -> None:
            if new is not None:
                self.enqueue(key_of(new))

        def pod_changed(old: Raw | None, new: Raw | None) -> None:
            pod = new if new is not None else old
            if pod is not None:
                for obj in self.world.all(resource, pod["metadata"]["namespace"]):
                    self.enqueue(key_of(obj))

        self.world.on(resource, changed)
        self.world.on(PODS, pod_changed)

    async def _reconcile(self, key: StoreKey) -> Result:
        try:
            await self.reconcile(key)
        except StatusError:  # somebody else was faster, or a webhook refused: the next look decides anew
            return _RETRY
        return _DONE
