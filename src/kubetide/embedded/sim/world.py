"""What the simulated cluster's own parts see of the API: raw objects, changes as they happen, owners and children.

Controllers inside the simulation read the store directly and hear of every change at once, which is what makes
thousands of pods cheap. What users could object to goes through the API as anybody's request would (pods are created
and deleted under admission); status, which belongs to the cluster, is written straight into the store.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from hashlib import blake2b
from random import Random
from typing import Any, Protocol

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.apiserver.rest.requests import Answer, Request, User
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.embedded.apiserver.rest.strategy import new_uid, timestamp
from kubetide.embedded.apiserver.storage.objects import LogEvent, ObjectStore, ResourceKey, StoreKey

PODS = ResourceKey("", "pods")
NODES = ResourceKey("", "nodes")
NAMESPACES = ResourceKey("", "namespaces")
EVENTS = ResourceKey("", "events")
SERVICES = ResourceKey("", "services")
ENDPOINTS = ResourceKey("", "endpoints")
PVCS = ResourceKey("", "persistentvolumeclaims")
REPLICATION_CONTROLLERS = ResourceKey("", "replicationcontrollers")
DEPLOYMENTS = ResourceKey("apps", "deployments")
REPLICA_SETS = ResourceKey("apps", "replicasets")
STATEFUL_SETS = ResourceKey("apps", "statefulsets")
DAEMON_SETS = ResourceKey("apps", "daemonsets")
CONTROLLER_REVISIONS = ResourceKey("apps", "controllerrevisions")
JOBS = ResourceKey("batch", "jobs")
CRON_JOBS = ResourceKey("batch", "cronjobs")
PDBS = ResourceKey("policy", "poddisruptionbudgets")

CONTROLLER_USER = User("system:kube-controller-manager", ("system:masters", "system:authenticated"))

MOST_EVENTS = 10_000

Handler = Callable[[Raw | None, Raw | None], None]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Sender(Protocol):
    """Carries a request to the API server and brings the answer; an error is an answer with its status."""

    def __call__(self, request: Request) -> Awaitable[Answer]: ...


class WriteRejected(StatusError):
    """The API server refused what a controller of the simulation asked for."""


def key_of(obj: Raw) -> StoreKey:
    """Return where an object lies."""
    metadata = obj["metadata"]
    return StoreKey(metadata.get("namespace") or "", metadata["name"])


def controller_of(obj: Raw) -> Raw | None:
    """Return the owner reference that says `controller`, if there is one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Raw = owner
            return found
    return None


def owner_reference(obj: Raw) -> Raw:
    """Return the reference a controlled object carries."""
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class World:
    """The store, seen by the parts of the simulation."""

    def __init__(self, store: ObjectStore, clock: Clock, send: Sender, random: Random) -> None:
        self.store = store
        self.clock = clock
        self.random = random
        self._send = send
        self._handlers: dict[ResourceKey, list[Handler]] = {}
        self._any: list[Callable[[ResourceKey, Raw | None, Raw | None], None]] = []
        self._children: dict[str, dict[tuple[ResourceKey, StoreKey], None]] = {}
        self.most_events = MOST_EVENTS
        self._event_keys: list[StoreKey] = []
        self._news: deque[tuple[ResourceKey, Raw | None, Raw | None]] = deque()
        self._telling = False
        for resource in store.resources():
            for entry in store.collection(resource).entries():
                self._index(resource, None, entry.obj)
        store.listen(self._changed)

    # -- hearing

    def on(self, resource: ResourceKey, handler: Handler) -> None:
        """Call `handler(old, new)` for every object there is (as new) and then for every change."""
        self._handlers.setdefault(resource, []).append(handler)
        for entry in list(self.store.collection(resource).entries()):
            handler(None, entry.obj)

    def on_any(self, handler: Callable[[ResourceKey, Raw | None, Raw | None], None]) -> None:
        """Call `handler(resource, old, new)` for every change of anything."""
        self._any.append(handler)

    def _changed(self, resource: ResourceKey, event: LogEvent) -> None:
        old = event.previous.obj if event.previous is not None else None
        new = None if event.change == "DELETED" else event.entry.obj
        self._index(resource, old, new)
        self._news.append((resource, old, new))
        if self._telling:
            return
        # A handler may itself change something: everybody hears of one change before anybody hears of the next.
        self._telling = True
        try:
            while self._news:
                self._tell(*self._news.popleft())
        finally:
            self._telling = False

    def _tell(self, resource: ResourceKey, old: Raw | None, new: Raw | None) -> None:
        if resource == EVENTS and old is None and new is not None:
            self._forget_old_events(new)
        for handler in self._handlers.get(resource, ()):
            handler(old, new)
        for watcher in self._any:
            watcher(resource, old, new)

    def _index(self, resource: ResourceKey, old: Raw | None, new: Raw | None) -> None:
        if old is not None and new is not None:
            was, now = old["metadata"].get("ownerReferences"), new["metadata"].get("ownerReferences")
            if was is now or was == now:
                return
        before = _owners(old)
        after = _owners(new)
        if before == after:
            return
        obj = new if new is not None else old
        if obj is None:
            return
        key = (resource, key_of(obj))
        for uid in before:
            if uid not in after:
                siblings = self._children.get(uid)
                if siblings is not None:
                    siblings.pop(key, None)
                    if not siblings:
                        del self._children[uid]
        for uid in after:
            if uid not in before:
                self._children.setdefault(uid, {})[key] = None

    # -- reading

    def now(self) -> datetime:
        return self.clock.now()

    def stamp(self) -> str:
        """Return the present as objects carry it."""
        return timestamp(self.clock.now())

    def get(self, resource: ResourceKey, key: StoreKey) -> Raw | None:
        entry = self.store.get(resource, key)
        return entry.obj if entry is not None else None

    def all(self, resource: ResourceKey, namespace: str | None = None) -> list[Raw]:
        return [entry.obj for entry in self.store.collection(resource).entries(namespace)]

    def children(self, uid: str, resource: ResourceKey) -> list[Raw]:
        """Return the objects of one resource that name `uid` as an owner, oldest first."""
        found = []
        for kind, key in self._children.get(uid, ()):
            if kind == resource:
                obj = self.get(kind, key)
                if obj is not None:
                    found.append(obj)
        return found

    def dependents(self, uid: str) -> list[tuple[ResourceKey, StoreKey]]:
        """Return everything that names `uid` as an owner."""
        return list(self._children.get(uid, ()))

    def workload_of(self, pod: Raw) -> tuple[str, str]:
        """Return namespace and name of the topmost owner of a pod, its own if it has none."""
        namespace = pod["metadata"]["namespace"]
        owner = controller_of(pod)
        if owner is None:
            return namespace, pod["metadata"]["name"]
        for kind, resource in (("ReplicaSet", REPLICA_SETS), ("Job", JOBS)):
            if owner.get("kind") == kind:
                parent = self.get(resource, StoreKey(namespace, owner["name"]))
                above = controller_of(parent) if parent is not None else None
                if above is not None:
                    return namespace, str(above["name"])
        return namespace, str(owner["name"])

    # -- writing what belongs to the cluster

    def put(self, resource: ResourceKey, old: Raw, **parts: Any) -> Raw:
        """Store `old` with some of its top-level parts replaced; nothing is written if nothing differs."""
        if all(old.get(name) == value for name, value in parts.items()):
            return old
        metadata = parts.pop("metadata", old["metadata"])
        new = {**old, **parts, "metadata": dict(metadata)}
        return self.store.put(resource, key_of(old), new, derived=True).obj

    def put_spec(self, resource: ResourceKey, old: Raw, spec: Raw, metadata: Raw | None = None) -> Raw:
        """Store a changed spec under the next generation."""
        if old.get("spec") == spec and (metadata is None or metadata == old["metadata"]):
            return old
        raised = dict(metadata or old["metadata"])
        if old.get("spec") != spec:
            raised["generation"] = int(raised.get("generation") or 0) + 1
        new = {**old, "spec": spec, "metadata": raised}
        return self.store.put(resource, key_of(old), new, derived=True).obj

    def remove(self, resource: ResourceKey, key: StoreKey) -> None:
        """Take an object out for good."""
        if self.store.get(resource, key) is not None:
            self.store.delete(resource, key, derived=True)

    def add(self, resource: ResourceKey, obj: Raw) -> Raw:
        """Put in an object of the cluster's own making, such as an event or a lease."""
        metadata = {**obj["metadata"], "uid": new_uid(self.random), "creationTimestamp": self.stamp()}
        return self.store.put(resource, key_of(obj), {**obj, "metadata": metadata}, derived=True).obj

    def record(self, involved: Raw, reason: str, message: str, *, kind: str = "Normal", component: str) -> None:
        """Leave an event about an object; the same one again only counts up."""
        metadata = involved["metadata"]
        namespace = metadata.get("namespace") or "default"
        digest = format(_stable_hash(f"{metadata.get('uid')}/{reason}/{message}"), "016x")
        key = StoreKey(namespace, f"{metadata['name']}.{digest}")
        now = self.stamp()
        known = self.get(EVENTS, key)
        if known is not None:
            self.store.put(
                EVENTS,
                key,
                {**known, "metadata": dict(known["metadata"]), "count": known["count"] + 1, "lastTimestamp": now},
                derived=True,
            )
            return
        self.add(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": key.name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": involved["apiVersion"],
                    "kind": involved["kind"],
                    "name": metadata["name"],
                    "namespace": metadata.get("namespace", ""),
                    "uid": metadata.get("uid", ""),
                },
                "reason": reason,
                "message": message,
                "type": kind,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": "",
            },
        )

    def _forget_old_events(self, new: Raw) -> None:
        """Events are the one thing that only grows: the oldest go when there are very many."""
        self._event_keys.append(key_of(new))
        if len(self._event_keys) > self.most_events:
            surplus = max(self.most_events // 5, 1)
            for key in self._event_keys[:surplus]:
                self.remove(EVENTS, key)
            del self._event_keys[:surplus]

    # -- asking the API

    async def create(self, resource: ResourceKey, body: Raw) -> Raw:
        """Create an object through the API; raise Rejected if it is refused."""
        return await self._ask("POST", resource, body["metadata"].get("namespace") or "", "", body)

    async def delete(
        self,
        resource: ResourceKey,
        key: StoreKey,
        *,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object through the API; one that is gone already is fine."""
        options: Raw = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._ask("DELETE", resource, key.namespace, key.name, options)
        except WriteRejected as error:
            if error.code not in (404, 409):
                raise

    async def _ask(self, method: str, resource: ResourceKey, namespace: str, name: str, body: Raw) -> Raw:
        path = path_of(resource, namespace, name)
        answer = await self._send(Request(method, path, body=_encode(body), user=CONTROLLER_USER))
        raw: Raw = _decode(answer.body)
        if answer.status >= 400:
            raise WriteRejected(answer.status, raw.get("reason", ""), raw.get("message", ""))
        return raw


def path_of(resource: ResourceKey, namespace: str, name: str = "") -> str:
    """Return the URL path of a built-in resource."""
    parts = ["", "apis", resource.group, "v1"] if resource.group else ["", "api", "v1"]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource.plural)
    if name:
        parts.append(name)
    return "/".join(parts)


def _owners(obj: Raw | None) -> list[str]:
    if obj is None:
        return []
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]


def _stable_hash(text: str) -> int:
    """Return a 60-bit number that is the same in every process, unlike `hash`."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 4


def stable_hash(value: Any) -> int:
    """Return a number for any JSON value that is the same in every process."""
    return _stable_hash(msgspec.json.encode(value, order="deterministic").decode())


def is_active(pod: Raw) -> bool:
    """Whether a pod still counts: neither finished nor on its way out."""
    return not pod["metadata"].get("deletionTimestamp") and phase_of(pod) not in ("Succeeded", "Failed")


def phase_of(pod: Raw) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_ready(pod: Raw) -> bool:
    """Whether a pod's Ready condition is true."""
    return condition_of(pod, "Ready") == "True"


def condition_of(obj: Raw, kind: str) -> str:
    """Return the status of a condition, or empty text."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return ""


def with_condition(conditions: Iterable[Raw] | None, new: Raw) -> list[Raw]:
    """Return conditions with `new` in the place of its type; an unchanged status keeps its transition time."""
    result: list[Raw] = []
    placed = False
    for condition in conditions or ():
        if condition.get("type") != new["type"]:
            result.append(condition)
            continue
        placed = True
        if condition.get("status") == new["status"]:
            new = {**new, "lastTransitionTime": condition.get("lastTransitionTime")}
        result.append(new)
    return result if placed else [*result, new]
