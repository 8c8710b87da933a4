"""The embedded API server, whole: store, verbs, admission, discovery, custom resources.

`EmbeddedApi.handle` is the one way in, for every transport. A write runs the verb's generator; where the verb asks
for admission, in-process and HTTPS webhooks get their say. Nothing here opens a socket.
"""

from random import Random, SystemRandom

from kubetide.api import hpa_versions
from kubetide.clock import Clock
from kubetide.embedded import crds, strategy
from kubetide.embedded.admission import Admission
from kubetide.embedded.builtin import NAMESPACES, builtin_resources, namespace_object
from kubetide.embedded.calls import Steps
from kubetide.embedded.objects import DEFAULT_WINDOW, LogEvent, ObjectStore, ResourceKey, StoreKey
from kubetide.embedded.render import answer_raw
from kubetide.embedded.requests import Answer, Request, Target, parse_target
from kubetide.embedded.resources import Registry
from kubetide.embedded.status import Raw, Refusal, method_not_allowed, no_such_path
from kubetide.embedded.verbs import Verbs
from kubetide.embedded.watching import WatchPlan

DEFAULT_GATES = frozenset(["HPAConfigurableTolerance"])
"""Feature gates that are on unless said otherwise: the tolerance of an autoscaler's behavior is kept."""

WRITES = ("POST", "PUT", "PATCH", "DELETE")


class EmbeddedApi:
    """A Kubernetes API server in one object. `seed` makes names and uids repeatable; None makes them random."""

    def __init__(
        self,
        *,
        clock: Clock,
        seed: int | None = 0,
        window: int = DEFAULT_WINDOW,
        gates: frozenset[str] = DEFAULT_GATES,
    ) -> None:
        self.clock = clock
        self.random = SystemRandom() if seed is None else Random(seed)
        self.store = ObjectStore(window=window)
        self.registry = Registry(builtin_resources(_hpa_to_storage, hpa_versions.v1_from_v2))
        self.verbs = Verbs(self.store, self.registry, clock, self.random, gates)
        self.admission = Admission(self.store, self.registry, clock)
        self.store.listen(self._changed)
        for name in NAMESPACES:
            self.insert(namespace_object(name))

    def insert(self, obj: Raw) -> Raw:
        """Store an object without admission or validation, as a cluster's own bootstrap does."""
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        resource = self.registry.by_kind(group, str(obj["kind"]), version)
        if resource is None:
            raise no_such_path()
        body = strategy.deep_copy(obj)
        stamped = self.verbs.to_storage(resource, body)
        status = stamped.get("status")
        strategy.stamp_new(resource, stamped, now=self.clock.now(), random=self.random)
        if status is not None:
            stamped["status"] = status
        strategy.apply_defaults(resource, stamped)
        metadata = stamped["metadata"]
        key = StoreKey(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        return self.store.put(resource.storage, key, stamped).obj

    async def handle(self, request: Request) -> Answer | WatchPlan:
        """Answer one request; a watch is answered with a plan for its stream. Never raises a Refusal."""
        try:
            return await self._handle(request)
        except Refusal as refusal:
            headers = {"retry-after": str(refusal.retry_after)} if refusal.retry_after is not None else {}
            answer = answer_raw(refusal.to_raw(), refusal.code)
            return Answer(answer.status, answer.body, headers=headers)

    async def _handle(self, request: Request) -> Answer | WatchPlan:
        target = parse_target(request.path)
        if target is None or not target.plural:
            raise no_such_path()
        if request.method in ("GET", "HEAD"):
            return self.verbs.read(request, target)
        if request.method not in WRITES:
            raise method_not_allowed(target.group, target.plural, request.method.lower())
        return await self._write(request, target)

    async def _write(self, request: Request, target: Target) -> Answer:
        steps = self.verbs.write(request, target)
        return await self._drive(steps)

    async def _drive(self, steps: Steps) -> Answer:
        """Run a verb to its end, asking webhooks where it asks for admission."""
        try:
            call = next(steps)
            while True:
                try:
                    admitted = await self.admission.admit(call) if self.admission.concerns(call) else call.obj
                except Refusal as refusal:
                    call = steps.throw(refusal)
                else:
                    call = steps.send(admitted)
        except StopIteration as finished:
            answer: Answer = finished.value
            return answer

    def _changed(self, resource: ResourceKey, event: LogEvent) -> None:
        if resource == strategy.CRDS:
            self._serve_crds()
            if event.change == "DELETED":
                self._forget(event.entry.obj)

    def _forget(self, crd: Raw) -> None:
        """Delete the objects of a resource that is no longer defined."""
        spec = crd.get("spec") or {}
        resource = ResourceKey(str(spec.get("group")), str((spec.get("names") or {}).get("plural")))
        for entry in list(self.store.collection(resource).entries()):
            self.store.delete(resource, entry.key)

    def _serve_crds(self) -> None:
        entries = self.store.collection(strategy.CRDS).entries()
        self.registry.set_custom(found for entry in entries for found in crds.resources_of(entry.obj))


def _hpa_to_storage(obj: Raw) -> Raw:
    return hpa_versions.to_v2(obj)
