"""Garbage collection: what is owned goes with its owners; orphaning and foreground deletion are worked off here.

An object goes when every owner it names is gone. A deletion in the foreground waits for the dependents that block it;
one that orphans takes the owner out of their references first.
"""

from kubetide.embedded.apiserver.rest.deletion import FOREGROUND, ORPHAN
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import key_of


class Garbage(SimController):
    """Keys of its queue are (uid, ""): the owner whose dependents need a look."""

    name = "garbage-collector"

    def watch(self) -> None:
        self._owners: dict[str, tuple[ResourceKey, StoreKey]] = {}
        for resource in self.world.store.resources():
            for obj in self.world.all(resource):
                self._owners[obj["metadata"]["uid"]] = (resource, key_of(obj))
        self.world.on_any(self._changed)

    def _changed(self, resource: ResourceKey, old: Raw | None, new: Raw | None) -> None:
        obj = new if new is not None else old
        if obj is None or resource.plural == "events":
            return
        uid = obj["metadata"].get("uid", "")
        if old is not None and new is not None and uid in self._owners and not new["metadata"].get("deletionTimestamp"):
            return  # known, and neither comes nor goes
        if new is None:
            self._owners.pop(uid, None)
            if self.world.dependents(uid):
                self.enqueue(StoreKey(uid, ""))
        else:
            self._owners[uid] = (resource, key_of(new))
            if new["metadata"].get("deletionTimestamp") and new["metadata"].get("finalizers"):
                self.enqueue(StoreKey(uid, ""))
        for owner in obj["metadata"].get("ownerReferences") or ():
            known = self._owners.get(owner["uid"])
            if known is None:
                if old is None:
                    self.enqueue(StoreKey(owner["uid"], ""))
            elif new is None or new["metadata"].get("deletionTimestamp"):
                above = self.world.get(*known)
                if above is not None and above["metadata"].get("deletionTimestamp"):
                    self.enqueue(StoreKey(owner["uid"], ""))

    async def reconcile(self, key: StoreKey) -> None:
        uid = key.namespace
        known = self._owners.get(uid)
        owner = self.world.get(*known) if known is not None else None
        if owner is None or known is None:
            for resource, child_key in self.world.dependents(uid):
                await self._collect(resource, child_key)
            return
        finalizers = owner["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for resource, child_key in self.world.dependents(uid):
                child = self.world.get(resource, child_key)
                if child is not None:
                    kept = [ref for ref in child["metadata"]["ownerReferences"] if ref["uid"] != uid]
                    self.world.put(resource, child, metadata={**child["metadata"], "ownerReferences": kept})
            self._finish(known, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for resource, child_key in self.world.dependents(uid):
                child = self.world.get(resource, child_key)
                if child is None:
                    continue
                reference = next(ref for ref in child["metadata"]["ownerReferences"] if ref["uid"] == uid)
                blocking |= bool(reference.get("blockOwnerDeletion"))
                if not child["metadata"].get("deletionTimestamp"):
                    await self.world.delete(resource, child_key, propagation="Foreground")
            if not blocking or not self.world.dependents(uid):
                self._finish(known, FOREGROUND)

    async def _collect(self, resource: ResourceKey, key: StoreKey) -> None:
        child = self.world.get(resource, key)
        if child is None or child["metadata"].get("deletionTimestamp"):
            return
        owners = child["metadata"].get("ownerReferences") or ()
        if not any(ref["uid"] in self._owners for ref in owners):
            await self.world.delete(resource, key, uid=child["metadata"]["uid"])

    def _finish(self, place: tuple[ResourceKey, StoreKey], finalizer: str) -> None:
        resource, key = place
        owner = self.world.get(resource, key)
        if owner is None:
            return
        kept = [name for name in owner["metadata"].get("finalizers") or () if name != finalizer]
        if not kept and not owner["metadata"].get("deletionGracePeriodSeconds"):
            self.world.remove(resource, key)
            return
        self.world.put(resource, owner, metadata={**owner["metadata"], "finalizers": kept})
