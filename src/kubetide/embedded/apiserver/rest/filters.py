"""Which objects a list or watch is about: namespace, labels, fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubetide.api.values.selectors import Selector, parse_field_selector, parse_selector
from kubetide.api.values.shard_selector import ShardSelector, parse_shard_selector
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw, bad_request, internal
from kubetide.embedded.apiserver.storage.objects import Entry, ResourceKey
from kubetide.errors import SelectorError

_META = ("metadata.name", "metadata.namespace")
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_FIELDS: dict[ResourceKey, tuple[str, ...]] = {
    ResourceKey("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ResourceKey("", "nodes"): ("spec.unschedulable",),
    ResourceKey("", "namespaces"): ("status.phase",),
    ResourceKey("", "secrets"): ("type",),
    ResourceKey("", "services"): ("spec.clusterIP", "spec.type"),
    ResourceKey("", "replicationcontrollers"): ("status.replicas",),
    ResourceKey("apps", "replicasets"): ("status.replicas",),
    ResourceKey("batch", "jobs"): ("status.successful",),
    ResourceKey("", "events"): (
        *(f"involvedObject.{field}" for field in _INVOLVED),
        *(f"regarding.{field}" for field in _INVOLVED),
        "reason",
        "reportingComponent",
        "reportingController",
        "source",
        "type",
    ),
}


@dataclass(frozen=True, slots=True)
class FieldTest:
    """One requirement on one field, compared as text; an absent field is the empty text."""

    path: tuple[str, ...]
    equal: bool
    value: str

    def matches(self, obj: Raw) -> bool:
        return (_field_text(obj, self.path) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Filter:
    """What a reader wants to see of one resource."""

    namespace: str | None = None
    labels: Selector | None = None
    fields: tuple[FieldTest, ...] = ()
    name: str | None = None
    shard: ShardSelector | None = None

    @property
    def takes_all(self) -> bool:
        return self.labels is None and not self.fields and self.name is None and self.shard is None

    def matches(self, entry: Entry) -> bool:
        if self.namespace is not None and entry.key.namespace != self.namespace:
            return False
        if self.name is not None and entry.key.name != self.name:
            return False
        if self.labels is not None and not self.labels.matches(entry.obj["metadata"].get("labels")):
            return False
        if not self.of_shard(entry):
            return False
        return all(test.matches(entry.obj) for test in self.fields)

    def of_shard(self, entry: Entry) -> bool:
        """Return whether an object belongs to the shard; without a shard every one does."""
        shard = self.shard
        return shard is None or shard.matches(entry.obj["metadata"].get("uid", ""), entry.key.namespace)


def shard_of_request(text: str) -> ShardSelector:
    """Return the shard that a request asks for; a bad selector is an error of the server, as upstream has it."""
    try:
        return parse_shard_selector(text)
    except SelectorError as error:
        raise internal(f"invalid shard selector: {error}") from error


def make_filter(resource: ApiResource, namespace: str, label_text: str, field_text: str) -> Filter:
    """Return the filter for the selectors of a request, or refuse selectors that are invalid."""
    try:
        labels = parse_selector(label_text) if label_text else None
        fields = parse_field_selector(field_text) if field_text else ()
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    tests: list[FieldTest] = []
    name: str | None = None
    for path, equal, value in fields:
        if path not in _META and path not in _known(resource):
            raise bad_request(f"field label not supported: {path}")
        if path == "metadata.name" and equal:
            name = value
        else:
            tests.append(FieldTest(_stored_path(resource.storage, path), equal, value))
    if labels is not None and labels.is_everything:
        labels = None
    return Filter(namespace or None if resource.namespaced else None, labels, tuple(tests), name)


def _known(resource: ApiResource) -> tuple[str, ...]:
    if resource.crd is not None:
        return resource.crd.selectable
    return _FIELDS.get(resource.storage, ())


def _stored_path(storage: ResourceKey, path: str) -> tuple[str, ...]:
    if storage == ("", "events"):
        path = path.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent")
        if path == "source":
            path = "source.component"
    if path == "status.successful":
        path = "status.succeeded"
    return tuple(path.split("."))


def _field_text(obj: Raw, path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


Render = Callable[[Entry], bytes]
