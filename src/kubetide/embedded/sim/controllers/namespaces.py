"""Namespaces: one that is being deleted is emptied, then let go. Every namespace has its default service account."""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import NAMESPACES, key_of

_SERVICE_ACCOUNTS = ResourceKey("", "serviceaccounts")


class Namespaces(SimController):
    """Empties what is terminating."""

    name = "namespace-controller"

    def watch(self) -> None:
        self.world.on(NAMESPACES, self._changed)
        self.world.on_any(self._content_changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None:
            self.enqueue(key_of(new))

    def _content_changed(self, resource: ResourceKey, old: Raw | None, new: Raw | None) -> None:
        if new is None and old is not None and old["metadata"].get("namespace"):
            key = StoreKey("", old["metadata"]["namespace"])
            namespace = self.world.get(NAMESPACES, key)
            if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
                self.enqueue(key)

    async def reconcile(self, key: StoreKey) -> None:
        namespace = self.world.get(NAMESPACES, key)
        if namespace is None:
            return
        if not namespace["metadata"].get("deletionTimestamp"):
            self._ensure_account(key.name)
            return
        left = False
        for resource in self.world.store.resources():
            for obj in self.world.all(resource, key.name):
                left = True
                if resource.plural in ("events", "serviceaccounts"):
                    self.world.remove(resource, key_of(obj))
                elif not obj["metadata"].get("deletionTimestamp"):
                    await self.world.delete(resource, key_of(obj))
        if not left:
            self.world.remove(NAMESPACES, key)

    def _ensure_account(self, namespace: str) -> None:
        key = StoreKey(namespace, "default")
        if self.world.get(_SERVICE_ACCOUNTS, key) is None:
            metadata = {"name": "default", "namespace": namespace}
            self.world.add(_SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
