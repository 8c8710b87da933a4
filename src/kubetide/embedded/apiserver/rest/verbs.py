"""The verbs: get, list, watch, create, update, patch, apply, delete. The only implementation of API semantics.

`Verbs.execute` is a generator, free of I/O: it reads and writes the store and yields an `AdmissionCall` where
webhooks have a say. Whoever drives it sends back the object as admitted, or throws a `StatusError` into it. Between the
two the world may have changed, so every write checks that it still starts from the current state, and begins again
if not: the same optimistic concurrency that clients see.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from kubetide.api.values.patch import JsonPatch, MergePatch, StrategicMergePatch
from kubetide.clock import Clock
from kubetide.embedded.apiserver.admission import limit_ranges, quotas
from kubetide.embedded.apiserver.admission.calls import AdmissionCall, Conversion, Parts, Steps
from kubetide.embedded.apiserver.apply import apply, managers
from kubetide.embedded.apiserver.auth.escalation import EscalationCheck
from kubetide.embedded.apiserver.crds import crds
from kubetide.embedded.apiserver.gates import SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.resources import ApiResource, Registry
from kubetide.embedded.apiserver.rest import deletion, strategy, subresources
from kubetide.embedded.apiserver.rest.bodies import (
    APPLY_YAML,
    PATCH_TYPES,
    check_preconditions,
    check_type,
    decode_body,
    decode_patch,
    is_dry_run,
    names_version,
    patched,
    settle_name,
    settle_namespace,
    with_warnings,
)
from kubetide.embedded.apiserver.rest.reading import Reading
from kubetide.embedded.apiserver.rest.render import (
    View,
    answer_object,
    answer_raw,
    in_version,
    make_view,
    unconverted,
    wanted_form,
)
from kubetide.embedded.apiserver.rest.requests import Answer, Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import (
    SUCCESS,
    Raw,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    method_not_allowed,
    unsupported_media,
)
from kubetide.embedded.apiserver.storage.objects import Entry, ObjectStore, StoreKey
from kubetide.embedded.apiserver.validation import strictness, validation
from kubetide.embedded.apiserver.validation.strictness import check_shape, check_size

_MAX_ATTEMPTS = 16

Transform = Callable[[Raw], Raw]
VirtualCreate = Callable[[Request, RequestTarget, Raw], Raw]
VirtualResources = Mapping[tuple[str, str], VirtualCreate]
"""Resources that exist only as an answer, such as access reviews, by group and plural."""


class Verbs(Reading):
    """API semantics over a store."""

    def __init__(
        self,
        store: ObjectStore,
        registry: Registry,
        clock: Clock,
        random: Random,
        *,
        gates: frozenset[str],
        escalation: EscalationCheck,
        virtual: VirtualResources,
        asks_webhooks: Callable[[ApiResource], bool],
    ) -> None:
        """`asks_webhooks`: whether any has a say about changes of a resource."""
        super().__init__(store, registry, clock, sharded=SHARDED_LIST_AND_WATCH in gates)
        self.random = random
        self.gates = gates
        self._escalation = escalation
        self._answers = virtual
        self._asks_webhooks = asks_webhooks

    def write(self, request: Request, target: RequestTarget) -> Steps:
        """Carry out a POST, PUT, PATCH or DELETE."""
        resource = self.resolve(target)
        wanted_form(request.accept)  # what cannot be answered is not done either
        if request.method != "DELETE":
            strictness.mode_of(request)
        match request.method:
            case "POST":
                return self._post(request, target, resource)
            case "PUT" if target.name:
                return self._put(request, target, resource)
            case "PATCH" if target.name:
                return self._patch(request, target, resource)
            case "DELETE" if target.name and not target.subresource:
                return deletion.delete(self, request, target, resource)
            case "DELETE" if not target.name:
                return deletion.delete_collection(self, request, target, resource)
        raise method_not_allowed(resource.group, resource.plural, request.method.lower())

    def _post(self, request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
        if target.name:
            match target.subresource:
                case "eviction":
                    return subresources.evict(self, request, target, resource)
                case "binding":
                    return subresources.bind(self, request, target, resource)
                case "token":
                    return self._virtual(request, target, resource, self._answers["serviceaccounts", "token"])
            raise method_not_allowed(resource.group, resource.plural, "create")
        if (make := self._answers.get((resource.group, resource.plural))) is not None:
            return self._virtual(request, target, resource, make)
        if resource.plural == "bindings" and not resource.group:
            return subresources.bind(self, request, target, resource)
        return self._create(request, target, resource)

    def _virtual(self, request: Request, target: RequestTarget, resource: ApiResource, make: VirtualCreate) -> Steps:
        yield from ()
        body = decode_body(request)
        body.setdefault("apiVersion", resource.api_version)
        body.setdefault("kind", resource.kind)
        return answer_raw(make(request, target, body), 201)

    def _create(self, request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
        body = decode_body(request)
        check_type(resource, body)
        noticed = strictness.check_body(request, resource, body)
        return self.create_object(request, target, resource, body, noticed=noticed)

    def create_object(
        self,
        request: Request,
        target: RequestTarget,
        resource: ApiResource,
        body: Raw,
        *,
        managed: list[Raw] | None = None,
        noticed: Sequence[str] = (),
    ) -> Steps:
        """Store a new object without unknown fields. `managed` replaces the usual note of who wrote it, `noticed` is
        what the client is to be warned of.
        """
        if resource.namespaced and not target.namespace:
            raise StatusError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        metadata = strategy.metadata_of(body)
        settle_namespace(resource, target, metadata)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self.check_namespace(resource, target.namespace)
        check_shape(resource, body)
        warnings = list(noticed)
        if not metadata.get("name") and metadata.get("generateName"):
            validation.check_text(metadata["generateName"], "metadata.generateName")
            metadata["name"] = strategy.generated_name(metadata["generateName"], self.random)
        obj = self.to_storage(resource, body, pruned=True)
        strategy.stamp_new(resource, obj, now=self.clock.now(), random=self.random)
        strategy.apply_defaults(resource, obj)
        strategy.apply_gates(resource, obj, self.gates)
        validation.check_name(resource, obj)
        limit_ranges.default_pod(self.store, resource, obj)
        if managed is not None:
            obj["metadata"]["managedFields"] = managed
        else:
            managers.record(resource, request, obj, None, now=self.clock.now())
        name = obj["metadata"]["name"]
        key = StoreKey(target.namespace, name)
        dry_run = is_dry_run(request)
        call = AdmissionCall(
            operation="CREATE",
            resource=resource,
            subresource="",
            namespace=target.namespace,
            name=name,
            obj=obj,
            old=None,
            request=request,
            dry_run=dry_run,
            options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        )
        admitted = yield call
        warnings += call.warnings
        if admitted is not obj and admitted is not None:
            # A webhook changes what users may change; identity stays the server's.
            admitted["metadata"]["uid"] = obj["metadata"]["uid"]
            obj = admitted
            strategy.apply_defaults(resource, obj)
        if resource.storage == strategy.PODS:
            obj["status"]["qosClass"] = strategy.pod_qos_class(obj["spec"])
        validation.check_new(resource, obj, self.gates)
        limit_ranges.check_pod(self.store, resource, obj)
        quotas.check_pod(self.store, resource, obj)
        self._escalation.check(request.user, resource, obj)
        stored = yield from self.converted(resource, obj)
        if self.store.get(resource.storage, key) is not None:
            raise already_exists(resource.group, resource.plural, name)
        entry = Entry(key, stored, 0) if dry_run else self.store.put(resource.storage, key, stored)
        answer = yield from self.answer(make_view(resource, request, self.clock.now()), entry, 201)
        return with_warnings(answer, warnings)

    def _put(self, request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
        body = decode_body(request)
        if target.subresource == "scale":
            noticed = strictness.check_part(request, *subresources.SCALE, body)
            return subresources.update_scale(self, request, target, resource, lambda _: body, noticed=noticed)
        if target.subresource in ("eviction", "binding", "token"):
            raise method_not_allowed(resource.group, resource.plural, "update")
        check_type(resource, body)
        noticed = strictness.check_body(request, resource, body)
        metadata = strategy.metadata_of(body)
        settle_name(target, metadata)
        settle_namespace(resource, target, metadata)
        versioned = bool(metadata.get("resourceVersion"))
        return self.modify(request, target, resource, body, versioned=versioned, noticed=noticed)

    def _patch(self, request: Request, target: RequestTarget, resource: ApiResource) -> Steps:
        media = request.content_type.partition(";")[0].strip()
        if media not in PATCH_TYPES:
            raise unsupported_media(media, PATCH_TYPES)
        if media == APPLY_YAML:
            return apply.apply(self, request, target, resource, decode_body(request, media=APPLY_YAML))
        if media == StrategicMergePatch.content_type and resource.crd is not None:
            raise unsupported_media(media, (JsonPatch.content_type, MergePatch.content_type, APPLY_YAML))
        patch = decode_patch(request, media)
        noticed = strictness.patch_complaints(request, patch)
        transform = partial(patched, patch)
        if target.subresource == "scale":
            return subresources.update_scale(self, request, target, resource, transform, noticed=noticed)
        return self.modify(request, target, resource, transform, versioned=names_version(patch), noticed=noticed)

    def modify(
        self,
        request: Request,
        target: RequestTarget,
        resource: ApiResource,
        change: Transform | Raw,
        *,
        manage: Callable[[Raw, Raw], None] | None = None,
        versioned: bool = False,
        noticed: Sequence[str] = (),
    ) -> Steps:
        """Change an existing object through the main path or one of its subresources.

        `change` makes the new object from a copy of the current one, or is the new one, without unknown fields.
        `versioned` writes are about one state of the object: if it changes meanwhile they fail instead of starting
        over. `noticed` is what is wrong with the fields of the request itself.
        """
        dry_run = is_dry_run(request)
        for _ in range(_MAX_ATTEMPTS):
            entry = self.existing(resource, target)
            old = yield from self.current(resource, entry)
            if isinstance(change, dict):
                wanted, warnings = {**change, "metadata": dict(change["metadata"])}, list(noticed)
                check_shape(resource, wanted)
                check_preconditions(resource, target, wanted["metadata"], old)
            else:
                wanted = change(in_version(resource, entry.copy() if old is entry.obj else strategy.deep_copy(old)))
                check_size(entry, request, wanted)
                found = [*noticed, *strictness.drop_unknown(resource, wanted)]
                check_type(resource, wanted)
                metadata = strategy.metadata_of(wanted)
                check_shape(resource, wanted)
                settle_namespace(resource, target, metadata)
                settle_name(target, metadata)
                check_preconditions(resource, target, metadata, old)
                warnings = strictness.check_patched(request, found)
            new = self.to_storage(resource, wanted, pruned=True)
            new = self._changed(resource, target.subresource, new, old)
            if manage is not None:
                manage(new, old)
            else:
                managers.record(resource, request, new, old, now=self.clock.now(), subresource=target.subresource)
            if self._asks_webhooks(resource):
                call = AdmissionCall(
                    operation="UPDATE",
                    resource=resource,
                    subresource=target.subresource,
                    namespace=target.namespace,
                    name=target.name,
                    obj=new,
                    old=old,
                    request=request,
                    dry_run=dry_run,
                    options={"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
                )
                admitted = yield call
                warnings += call.warnings
                if admitted is not new and admitted is not None:
                    new = self._changed(resource, target.subresource, admitted, old)
            validation.check_change(resource, target.subresource, new, old, self.gates)
            if target.subresource == "resize":
                quotas.check_pod(self.store, resource, new, old)
            self._escalation.check(request.user, resource, new, old)
            stored = yield from self.converted(resource, new)
            if self.store.get(resource.storage, entry.key) is not entry:
                if versioned:
                    raise conflict(resource.group, resource.plural, target.name)
                continue
            view = make_view(resource, request, self.clock.now())
            if managers.same_but_for_times(new, old):
                result = entry
            elif dry_run:
                result = Entry(entry.key, stored, entry.revision)
            else:
                result = self.commit(resource, entry.key, stored)
            return with_warnings((yield from self.answer(view, result)), warnings)
        raise conflict(resource.group, resource.plural, target.name)

    def _changed(self, resource: ApiResource, subresource: str, new: Raw, old: Raw) -> Raw:
        """Return what a write through this path really changes of the old object."""
        if subresource == "status":
            new = strategy.only_status(new, old)
            if resource.crd is None:
                return new  # a built-in's status has no defaults, and the rest of it is the old object's
        else:
            strategy.keep_identity(resource, new, old)
            match subresource:
                case "resize":
                    new = subresources.only_resources(new, old)
                case "finalize":
                    new = {**old, "spec": new.get("spec") or {}}
                case _:
                    if resource.has_status:
                        strategy.keep_status(new, old)
                    if resource.storage == strategy.CRDS:
                        crds.note_storage_version(new)
        strategy.apply_defaults(resource, new)
        strategy.apply_gates(resource, new, self.gates, old)
        strategy.count_generation(resource, new, old)
        return new

    def current(self, resource: ApiResource, entry: Entry) -> Parts[Raw]:
        """Return the object to change: as it is stored, or in the version of the request if that is another matter."""
        crd = resource.crd
        if crd is None or not crd.converts(entry.obj):
            return entry.obj
        yield Conversion(resource=resource, entries=(entry,))
        return View(resource).raw(entry)

    def converted(self, resource: ApiResource, obj: Raw) -> Parts[Raw]:
        """Return an object as it is stored, after it was worked on in the version of the request."""
        if resource.crd is None or not resource.crd.converts_to_store():
            return obj
        stored = yield Conversion(resource=resource, obj=obj)
        return stored if stored is not None else obj

    def answer(self, view: View, entry: Entry, status: int = 200) -> Parts[Answer]:
        """Return one object as an answer."""
        waiting = unconverted(view, (entry,))
        if waiting:
            yield Conversion(resource=view.resource, entries=waiting)
        return answer_object(view, entry, status)

    def commit(self, resource: ApiResource, key: StoreKey, new: Raw) -> Entry:
        """Store a changed object, or remove it if it was only waiting for its last finalizer."""
        if deletion.is_finished(resource, new):
            return self.store.delete(resource.storage, key, last=new)
        return self.store.put(resource.storage, key, new)

    def to_storage(self, resource: ApiResource, obj: Raw, *, pruned: bool = False) -> Raw:
        """Return an object of the request's version as it is stored. `pruned`: it has no unknown fields any more."""
        if resource.to_storage is not None:
            return resource.to_storage(obj)
        if resource.crd is not None:
            return resource.crd.store(obj, pruned=pruned)
        return obj

    def success(self, details: Raw | None = None) -> Answer:
        """Return the Status of a request that succeeded."""
        return answer_raw({**SUCCESS, "details": details} if details else SUCCESS)
