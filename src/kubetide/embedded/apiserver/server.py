"""The embedded API server, whole: store, verbs, admission, access, discovery, custom resources.

`ApiServer.handle` is the one way in, for every transport. A write runs the verb's generator; where the verb asks
for admission, in-process and HTTPS webhooks get their say. Nothing here opens a socket.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom
from types import MappingProxyType

from kubetide.api.objects import hpa_versions
from kubetide.clock import Clock
from kubetide.embedded.apiserver import metrics_api
from kubetide.embedded.apiserver.admission.admission import Admission
from kubetide.embedded.apiserver.admission.calls import Conversion, Steps
from kubetide.embedded.apiserver.auth.escalation import EscalationCheck
from kubetide.embedded.apiserver.auth.rbac import Authorizer, bootstrap_objects, verb_of
from kubetide.embedded.apiserver.auth.reviews import Reviews
from kubetide.embedded.apiserver.auth.tokens import SERVICE_ACCOUNTS, Tokens
from kubetide.embedded.apiserver.builtin import NAMESPACES, builtin_resources, namespace_object
from kubetide.embedded.apiserver.crds import crds
from kubetide.embedded.apiserver.crds.conversion import Conversions
from kubetide.embedded.apiserver.crds.crds import Unconverted
from kubetide.embedded.apiserver.discovery import Extra, Forward, discover
from kubetide.embedded.apiserver.faults import Faults, SkewedClock
from kubetide.embedded.apiserver.gates import DEFAULT_GATES
from kubetide.embedded.apiserver.metrics_api import MetricsProvider
from kubetide.embedded.apiserver.nonresource import NonResource
from kubetide.embedded.apiserver.resources import Registry
from kubetide.embedded.apiserver.rest import strategy
from kubetide.embedded.apiserver.rest.render import answer_raw
from kubetide.embedded.apiserver.rest.requests import Answer, Request, RequestTarget, User, parse_target
from kubetide.embedded.apiserver.rest.status import (
    Raw,
    StatusError,
    bad_request,
    method_not_allowed,
    no_such_path,
    timed_out,
    unavailable,
)
from kubetide.embedded.apiserver.rest.verbs import Verbs
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.storage.objects import DEFAULT_WINDOW, LogEvent, ObjectStore, ResourceKey, StoreKey

WRITES = ("POST", "PUT", "PATCH", "DELETE")
API_SERVICES = ResourceKey("apiregistration.k8s.io", "apiservices")

_MAX_ROUNDS = 8

Audit = Callable[[Request, int], None]
NodeProxy = Callable[[str, str, Request], Awaitable[Answer]]


class ApiServer:
    """A Kubernetes API server in one object. `seed` makes names and uids repeatable; None makes them random."""

    def __init__(
        self,
        *,
        clock: Clock,
        seed: int | None = 0,
        window: int = DEFAULT_WINDOW,
        gates: frozenset[str] = DEFAULT_GATES,
        store: ObjectStore | None = None,
        token_key: bytes | None = None,
        tokens: Mapping[str, User] = MappingProxyType({}),
        audit: Audit | None = None,
    ) -> None:
        """`tokens` never expire, `audit` hears of every request and the status of its answer."""
        self.faults = Faults()
        self.clock: Clock = SkewedClock(clock, self.faults)
        self.random = SystemRandom() if seed is None else Random(seed)
        self.store = store or ObjectStore(window=window)
        self.registry = Registry(builtin_resources(hpa_versions.to_v2, hpa_versions.v1_from_v2))
        self._serve_crds()
        self.conversions = Conversions()
        self.admission = Admission(self.store, self.registry, self.conversions)
        self.authorizer = Authorizer(self.store)
        self.tokens = Tokens(self.store, self.clock, token_key or self.random.randbytes(32), tokens)
        self.verbs = Verbs(
            self.store,
            self.registry,
            self.clock,
            self.random,
            gates=gates,
            escalation=EscalationCheck(self.authorizer),
            virtual=Reviews(self.authorizer).resources(self.tokens),
            asks_webhooks=self.admission.concerns,
        )
        self._audit = audit
        self.metrics_provider: MetricsProvider | None = None
        """Serves the three metrics APIs, if there is one. A simulated cluster brings its own."""
        self.node_proxy: NodeProxy | None = None
        """Answers `nodes/NAME/proxy/…` (node, path below, request), if there is one."""
        self.forward: Forward | None = None
        """Sends a request to the server behind an APIService, while there is a network."""
        self._non_resource = NonResource(self.registry, self.store, self.verbs.shard_meter.text)
        self._services = self.store.collection(API_SERVICES)
        self.store.listen(self._changed, strategy.CRDS, strategy.NAMESPACES)
        self._bootstrap()

    def _bootstrap(self) -> None:
        for obj in (*(namespace_object(name) for name in NAMESPACES), *bootstrap_objects()):
            resource = self.registry.by_kind(str(obj["apiVersion"]).rpartition("/")[0], str(obj["kind"]))
            name = StoreKey("", obj["metadata"]["name"])
            if resource is not None and self.store.get(resource.storage, name) is None:
                self.insert(obj)
        # What follows from other objects may not have been durable when the server was last stopped.
        for entry in self.store.collection(strategy.NAMESPACES).entries():
            self._default_account(entry.key.name)

    def insert(self, obj: Raw, *, derived: bool = False) -> Raw:
        """Store an object without admission or validation, as a cluster's own bootstrap does."""
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        resource = self.registry.by_kind(group, str(obj["kind"]), version)
        if resource is None:
            raise no_such_path()
        stored = self.verbs.to_storage(resource, strategy.deep_copy(obj))
        status = stored.get("status")
        strategy.stamp_new(resource, stored, now=self.clock.now(), random=self.random)
        if status is not None:
            stored["status"] = status
        strategy.apply_defaults(resource, stored)
        metadata = stored["metadata"]
        key = StoreKey(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        return self.store.put(resource.storage, key, stored, derived=derived).obj

    async def handle(self, request: Request) -> Answer | WatchPlan:
        """Answer one request; a watch is answered with a plan for its stream. Never raises a StatusError."""
        try:
            answer = await self._handle(request)
        except StatusError as error:
            headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else {}
            told = answer_raw(error.to_raw(), error.code)
            answer = Answer(told.status, told.body, headers=headers)
        except RecursionError:
            answer = answer_raw(bad_request("the object is nested too deeply").to_raw(), 400)
        if self._audit is not None:
            self._audit(request, answer.status if isinstance(answer, Answer) else 200)
        return answer

    async def _handle(self, request: Request) -> Answer | WatchPlan:
        target = parse_target(request.path)
        self.authorizer.check_request(request, target)
        if target is None or not target.plural:
            return await self._above_resources(request, target)
        if self.faults.meddle:
            await self.faults.before(verb_of(request, target), target.group, target.plural, target.name)
        service = self._api_service(target)
        if service is not None:
            return await self._forwarded(service, request)
        if target.group in metrics_api.GROUPS:
            if self.metrics_provider is None:
                raise no_such_path()
            return metrics_api.answer(self.metrics_provider, request, target, self.clock.now())
        if target.subresource == "proxy" and target.plural == "nodes" and self.node_proxy is not None:
            return await self.node_proxy(target.name, target.rest, request)
        if request.method in ("GET", "HEAD"):
            try:
                return self._read(request, target)
            except Unconverted:
                return await self._read_converted(request, target)
        if request.method not in WRITES:
            raise method_not_allowed(target.group, target.plural, request.method.lower())
        return await self._write(request, target)

    async def _above_resources(self, request: Request, target: RequestTarget | None) -> Answer:
        if target is not None:
            service = self._api_service(target)
            if service is not None:
                return await self._forwarded(service, request)
        return self._non_resource.answer(request, await self._extra())

    async def _extra(self) -> Extra:
        """Return the groups that others serve: the metrics provider, and the servers behind APIServices."""
        groups = metrics_api.listed(self.metrics_provider) if self.metrics_provider is not None else {}
        for entry in self._services.entries():
            spec = entry.obj.get("spec") or {}
            if spec.get("service") and self.forward is not None:
                group, version = str(spec.get("group")), str(spec.get("version"))
                groups.setdefault(group, {})[version] = await discover(self.forward, entry.obj, group, version)
        return Extra(groups)

    def _api_service(self, target: RequestTarget) -> Raw | None:
        """Return the APIService that takes over this group and version, if there is one with a server behind it."""
        if not target.group or not self._services:
            return None
        entry = self._services.get(StoreKey("", f"{target.version}.{target.group}"))
        return entry.obj if entry is not None and (entry.obj.get("spec") or {}).get("service") else None

    async def _forwarded(self, service: Raw, request: Request) -> Answer:
        if self.forward is None:
            raise unavailable("this API server makes no network calls, so aggregated APIs are out of reach")
        return await self.forward(service, request)

    def _read(self, request: Request, target: RequestTarget) -> Answer | WatchPlan:
        answer = self.verbs.read(request, target)
        if isinstance(answer, WatchPlan):
            if self.faults.concerns(target.plural):
                answer.tamper = self.faults.tamper
                answer.frozen = self._is_frozen
            if answer.resource.crd is not None and answer.resource.crd.webhook is not None:
                answer.prepare = partial(self.conversions.show, answer.resource)
        return answer

    async def _read_converted(self, request: Request, target: RequestTarget) -> Answer | WatchPlan:
        """Ask the conversion webhook first. What is read may change meanwhile, so it may take more than one call."""
        for _ in range(_MAX_ROUNDS):
            await self.conversions.show(self.verbs.resolve(target), self.verbs.entries_read(request, target))
            with suppress(Unconverted):
                return self._read(request, target)
        raise timed_out("the objects changed faster than they could be converted")

    def thaw(self) -> None:
        """Let frozen watches go on, with everything they missed."""
        self.faults.frozen = False
        for resource in self.store.resources():
            self.store.collection(resource).log.notify()

    def _is_frozen(self) -> bool:
        return self.faults.frozen

    async def _write(self, request: Request, target: RequestTarget) -> Answer:
        return await self._drive(self.verbs.write(request, target))

    async def _drive(self, steps: Steps) -> Answer:
        """Run a verb to its end, asking webhooks where it asks for admission or conversion."""
        try:
            call = next(steps)
            while True:
                try:
                    if isinstance(call, Conversion):
                        admitted = await self.conversions.carry_out(call)
                    else:
                        asked = self.admission.concerns(call.resource)
                        admitted = await self.admission.admit(call) if asked else call.obj
                except StatusError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(admitted)
        except StopIteration as finished:
            answer: Answer = finished.value
            return answer

    def _changed(self, resource: ResourceKey, event: LogEvent) -> None:
        if resource == strategy.CRDS:
            self._serve_crds()
            self._forget_views(event.entry.obj)
            if event.change != "MODIFIED":
                # Objects that are there before their definition outlived an earlier one.
                self._forget(_resource_of(event.entry.obj))
        elif event.change == "ADDED":
            self._default_account(event.entry.key.name)

    def _default_account(self, namespace: str) -> None:
        """Every namespace has a service account that pods use unless they name another."""
        if self.store.get(SERVICE_ACCOUNTS, StoreKey(namespace, "default")) is None:
            metadata = {"name": "default", "namespace": namespace}
            self.insert({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, derived=True)

    def _forget_views(self, crd: Raw) -> None:
        """Objects may look different under a definition that changed."""
        for entry in self.store.collection(_resource_of(crd)).entries():
            entry.forget_views()

    def _forget(self, resource: ResourceKey) -> None:
        """Delete the objects of a resource that is no longer defined."""
        for entry in list(self.store.collection(resource).entries()):
            self.store.delete(resource, entry.key, derived=True)

    def _serve_crds(self) -> None:
        entries = self.store.collection(strategy.CRDS).entries()
        self.registry.set_custom(found for entry in entries for found in crds.resources_of(entry.obj))


def _resource_of(crd: Raw) -> ResourceKey:
    spec = crd.get("spec") or {}
    return ResourceKey(str(spec.get("group")), str((spec.get("names") or {}).get("plural")))
