"""What a path names, and reading it: one object, a list, a watch."""

from functools import partial

from kubetide.clock import Clock
from kubetide.embedded.apiserver.resources import ApiResource, Registry
from kubetide.embedded.apiserver.rest import strategy, subresources
from kubetide.embedded.apiserver.rest.listing import list_page, parse_version, plan_watch, request_filter, too_new
from kubetide.embedded.apiserver.rest.render import View, answer_list, answer_object, answer_raw, make_view
from kubetide.embedded.apiserver.rest.requests import Answer, Request, RequestTarget
from kubetide.embedded.apiserver.rest.shard_meter import ShardMeter
from kubetide.embedded.apiserver.rest.status import (
    Raw,
    bad_request,
    forbidden,
    method_not_allowed,
    no_such_path,
    not_found,
)
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.storage.objects import Entry, ObjectStore, StoreKey


class Reading:
    """The verbs that change nothing."""

    def __init__(self, store: ObjectStore, registry: Registry, clock: Clock, *, sharded: bool = False) -> None:
        """`sharded`: whether lists and watches may be asked for by shard."""
        self._sharded = sharded
        self.shard_meter = ShardMeter()
        self.store = store
        self.registry = registry
        self.clock = clock

    def resolve(self, target: RequestTarget) -> ApiResource:
        """Return the resource that a path names, or refuse."""
        resource = self.registry.find(target.group, target.version, target.plural)
        if resource is None or (target.namespace and not resource.namespaced):
            raise no_such_path()
        if target.subresource and not (target.name and target.subresource in resource.subresources):
            raise no_such_path()
        return resource

    def read(self, request: Request, target: RequestTarget) -> Answer | WatchPlan:
        """Answer a GET: one object, a list, or a watch."""
        resource = self.resolve(target)
        view = make_view(resource, request, self.clock.now())
        watches = request.flag("watch")
        if target.name and not watches:
            return self._get(request, target, resource, view)
        if resource.verbs == ("create",):
            raise method_not_allowed(resource.group, resource.plural, "list")
        if watches:
            plan = plan_watch(self.store, resource, target, request, view.line, sharded=self._sharded)
            plan.render_bookmark = view.bookmark
            plan.meter = self.shard_meter
            plan.plain = view.form == "object" and resource.from_storage is None and resource.crd is None
            return plan
        page = list_page(self.store, resource, target, request, sharded=self._sharded)
        metadata: Raw = {"resourceVersion": str(page.revision)}
        if page.shard:
            # Whoever asked for a shard cannot know otherwise whether the server knows about shards.
            metadata["shardInfo"] = {"selector": page.shard}
        if page.continue_token:
            metadata["continue"] = page.continue_token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        return answer_list(view, page.entries, metadata)

    def entries_read(self, request: Request, target: RequestTarget) -> list[Entry]:
        """Return the entries that a GET would show."""
        resource = self.resolve(target)
        if target.name:
            return [self.existing(resource, target)]
        return list_page(self.store, resource, target, request, sharded=self._sharded).entries

    def _get(self, request: Request, target: RequestTarget, resource: ApiResource, view: View) -> Answer:
        revision = parse_version(request.query.get("resourceVersion", ""))
        if revision > self.store.revision:
            raise too_new(revision, self.store.revision)
        entry = self.existing(resource, target)
        if target.subresource == "scale":
            if resource.crd is not None and resource.crd.converts(entry.obj):
                return answer_raw(subresources.scale_of(resource, view.raw(entry)))
            scale = entry.view(f"scale of {resource.api_version}", partial(subresources.scale_of, resource))
            return Answer(200, scale)
        return answer_object(view, entry)

    def existing(self, resource: ApiResource, target: RequestTarget) -> Entry:
        """Return the object that a path names, or refuse."""
        if resource.namespaced and not target.namespace:
            raise bad_request("an empty namespace may not be set when a resource name is provided")
        entry = self.store.get(resource.storage, target.key)
        if entry is None:
            raise not_found(resource.group, resource.plural, target.name)
        return entry

    def check_namespace(self, resource: ApiResource, namespace: str) -> None:
        """Refuse to create anything in a namespace that is not there, or is going away."""
        if not resource.namespaced:
            return
        entry = self.store.get(strategy.NAMESPACES, StoreKey("", namespace))
        if entry is None:
            raise not_found("", "namespaces", namespace)
        if entry.obj["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource.group, resource.plural, "", why)

    def matching(self, resource: ApiResource, target: RequestTarget, request: Request) -> list[Entry]:
        """Return the objects that a collection request is about."""
        wanted = request_filter(resource, target, request)
        entries = self.store.collection(resource.storage).entries(wanted.namespace)
        return [entry for entry in entries if wanted.matches(entry)]
