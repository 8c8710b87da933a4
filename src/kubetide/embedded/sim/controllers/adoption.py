"""Whose pods are whose: a set takes over what its selector matches and nobody controls, and lets go what it no longer
matches.

Orphans are rare, so nothing is kept about them: an object without a controller is held against the selectors of its
namespace when it changes, and a set looks around once when it is made.
"""

from collections.abc import Callable

from kubetide.api.values.selectors import Selector, selector_from
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.apiserver.tables.workload_printers import label_selector
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import PODS, World, controller_of, key_of, owner_reference
from kubetide.errors import InvalidInput

Fits = Callable[[Raw, Raw], bool]


def selector_for(owner: Raw) -> Selector | None:
    """Return what a set selects; None if it selects nothing, or cannot be read."""
    raw = (owner.get("spec") or {}).get("selector")
    if not isinstance(raw, dict) or not raw:
        return None
    if owner.get("kind") == "ReplicationController":
        raw = {"matchLabels": raw}
    try:
        return selector_from(label_selector(raw))
    except InvalidInput:
        return None


def selects(owner: Raw, obj: Raw) -> bool:
    """Whether the selector of a set matches an object."""
    found = selector_for(owner)
    return found is not None and found.matches(obj["metadata"].get("labels"))


def with_owner(obj: Raw, owner: Raw) -> Raw:
    """Return the metadata of an object under a new controller."""
    metadata: Raw = obj["metadata"]
    others = [ref for ref in metadata.get("ownerReferences") or () if ref["uid"] != owner["metadata"]["uid"]]
    return {**metadata, "ownerReferences": [*others, owner_reference(owner)]}


def without_owner(obj: Raw, uid: str) -> Raw:
    """Return the metadata of an object that a controller lets go."""
    metadata = dict(obj["metadata"])
    kept = [ref for ref in metadata.get("ownerReferences") or () if ref["uid"] != uid]
    if kept:
        metadata["ownerReferences"] = kept
    else:
        metadata.pop("ownerReferences", None)
    return metadata


class Adoption:
    """The claims of one kind of set on one kind of object."""

    def __init__(
        self,
        world: World,
        owners: ResourceKey,
        dependents: ResourceKey,
        enqueue: Callable[[StoreKey], None],
        fits: Fits = selects,
    ) -> None:
        self._world = world
        self._owners = owners
        self._dependents = dependents
        self._enqueue = enqueue
        self._fits = fits
        self._found: dict[StoreKey, dict[StoreKey, None]] = {}

    def orphan_changed(self, old: Raw | None, obj: Raw | None) -> None:
        """An object without a controller came or changed: enqueue the sets that could take it."""
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        is_same = old is not None and controller_of(old) is None
        if is_same and old is not None and old["metadata"].get("labels") == obj["metadata"].get("labels"):
            return
        for owner in self._world.all(self._owners, obj["metadata"]["namespace"]):
            if self._fits(owner, obj):
                self._note(owner, obj)

    def set_came(self, owner: Raw) -> None:
        """A set came: note the orphans that it could take."""
        for obj in self._world.all(self._dependents, owner["metadata"]["namespace"]):
            if controller_of(obj) is None and self._fits(owner, obj):
                self._note(owner, obj)

    def strayed(self, old: Raw | None, new: Raw | None, key: StoreKey) -> None:
        """A controlled object changed: if its labels did, its set may have to let it go."""
        if old is None or new is None or old["metadata"].get("labels") == new["metadata"].get("labels"):
            return
        self._found.setdefault(key, {})[key_of(new)] = None
        self._enqueue(key)

    def settle(self, owner: Raw) -> None:
        """Take what was found for a set and is still free, and let go what it no longer matches."""
        found = self._found.pop(key_of(owner), None)
        if found is None or owner["metadata"].get("deletionTimestamp"):
            return
        uid = owner["metadata"]["uid"]
        for key in found:
            obj = self._world.get(self._dependents, key)
            if obj is None or obj["metadata"].get("deletionTimestamp"):
                continue
            controller = controller_of(obj)
            if controller is None and self._fits(owner, obj):
                self._world.put(self._dependents, obj, metadata=with_owner(obj, owner))
            elif controller is not None and controller["uid"] == uid and not selects(owner, obj):
                self._world.put(self._dependents, obj, metadata=without_owner(obj, uid))

    def _note(self, owner: Raw, obj: Raw) -> None:
        self._found.setdefault(key_of(owner), {})[key_of(obj)] = None
        self._enqueue(key_of(owner))


class OwnerController(SimController):
    """A controller of sets: what changes about a set or about what it owns, or could own, brings the set back."""

    kind: str
    resource: ResourceKey
    dependents: ResourceKey = PODS
    fits: Fits = staticmethod(selects)

    def watch(self) -> None:
        self._claims = Adoption(self.world, self.resource, self.dependents, self.enqueue, self.fits)
        self.world.on(self.resource, self._changed)
        self.world.on(self.dependents, self._dependent_changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None and (old is None or old.get("spec") != new.get("spec")):
            self.enqueue(key_of(new))
            if old is None:
                self._claims.set_came(new)

    def _dependent_changed(self, old: Raw | None, new: Raw | None) -> None:
        for obj in (old, new):
            owner = controller_of(obj) if obj is not None else None
            if obj is not None and owner is not None and owner.get("kind") == self.kind:
                key = StoreKey(obj["metadata"]["namespace"], owner["name"])
                self.enqueue(key)
                self._claims.strayed(old, new, key)
                break
        if new is not None and controller_of(new) is None:
            self._claims.orphan_changed(old, new)
