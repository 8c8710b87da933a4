"""How an object becomes what is stored: system metadata, status kept apart, generation, defaults.

The server owns uid, creation and deletion times and generation; a write through the main path cannot touch status
where status is a subresource, and a write to `status` can touch nothing else. Generation counts changes of anything
outside metadata and status.
"""

from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from kubetide.api.objects import hpa_versions
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.embedded.apiserver.crds import crds
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw, bad_request
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.apiserver.validation.defaults import DEFAULTS

PODS = ResourceKey("", "pods")
NAMESPACES = ResourceKey("", "namespaces")
SERVICES = ResourceKey("", "services")
HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")
CRDS = ResourceKey("apiextensions.k8s.io", "customresourcedefinitions")

_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_NOT_OF_STATUS = (*_SERVER_OWNED, "name", "namespace", "resourceVersion", "ownerReferences", "finalizers")
"""Metadata that a write of the status leaves alone."""
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE = 58
_encode = msgspec.json.Encoder().encode


def timestamp(now: datetime) -> str:
    """Return a time as API objects carry it: UTC, whole seconds."""
    moment = now if now.tzinfo is UTC else now.astimezone(UTC)
    # Several times quicker than isoformat(), and every write has one.
    return f"{_encode(moment)[1:20].decode()}Z"


def new_uid(random: Random) -> str:
    """Return a version 4 UUID from the given source."""
    return str(UUID(int=random.getrandbits(128), version=4))


def generated_name(base: str, random: Random) -> str:
    """Return `base`, cut if need be, with five random characters."""
    return base[:_MAX_GENERATED_BASE] + "".join(random.choice(_NAME_ALPHABET) for _ in range(5))


def metadata_of(obj: Raw) -> Raw:
    """Return the metadata of a raw object, which must be an object itself."""
    metadata = obj.setdefault("metadata", {})
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata: must be an object")
    return metadata


def apply_defaults(resource: ApiResource, obj: Raw) -> None:
    """Fill in defaults: of the built-in type, or of the CRD's schema."""
    if resource.crd is not None:
        resource.crd.default(obj)
        return
    fill = DEFAULTS.get(resource.storage)
    if fill is not None:
        fill(obj)


def apply_gates(resource: ApiResource, obj: Raw, gates: frozenset[str], old: Raw | None = None) -> None:
    """Remove fields whose feature gate is off, unless the stored object already uses them; count gated generations."""
    if resource.storage == HPAS:
        compat = HpaCompat(gates=gates)
        hpa_versions.drop_disabled(obj, compat, old=old)
        hpa_versions.count_generation(obj, compat, old=old)


def stamp_new(resource: ApiResource, obj: Raw, *, now: datetime, random: Random) -> None:
    """Give a new object its identity and drop what a creator may not set."""
    metadata = metadata_of(obj)
    for field in _SERVER_OWNED:
        if field != "generation" or resource.storage != HPAS:  # whether that is the server's is up to a gate
            metadata.pop(field, None)
    metadata.pop("resourceVersion", None)
    metadata["uid"] = new_uid(random)
    metadata["creationTimestamp"] = timestamp(now)
    if resource.generation or resource.crd is not None:
        metadata["generation"] = 1
    if resource.has_status:
        obj.pop("status", None)
    if resource.storage == PODS:
        obj["status"] = {"phase": "Pending", "qosClass": pod_qos_class(obj.get("spec") or {})}
    if resource.storage == SERVICES:
        _give_address(obj, random)
    if resource.storage == HPAS:
        obj["status"] = hpa_versions.cleared_status()
    if resource.storage == CRDS:
        obj["status"] = crds.established(obj, timestamp(now))


def _give_address(service: Raw, random: Random) -> None:
    """Give a service a cluster address. Nothing routes it; clients expect that there is one."""
    spec = service.get("spec")
    if isinstance(spec, dict) and not spec.get("clusterIP") and spec.get("type") != "ExternalName":
        spec["clusterIP"] = f"10.96.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        spec["clusterIPs"] = [spec["clusterIP"]]


def keep_identity(resource: ApiResource, new: Raw, old: Raw) -> None:
    """Carry over to a changed object what its writer cannot change."""
    metadata, was = metadata_of(new), old["metadata"]
    for field in _SERVER_OWNED:
        if field in was:
            metadata[field] = was[field]
        else:
            metadata.pop(field, None)
    metadata["name"] = was["name"]
    metadata["resourceVersion"] = was["resourceVersion"]
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]


def keep_status(new: Raw, old: Raw) -> None:
    """Undo any change of status: a write through the main path has no say in it."""
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def only_status(new: Raw, old: Raw) -> Raw:
    """Return `old` with the status of `new`, and its metadata apart from what only the main path may change."""
    result = dict(old)
    if new.get("status") is not None:
        result["status"] = new["status"]
    else:
        result.pop("status", None)
    metadata = result["metadata"] = dict(metadata_of(new))
    was = old["metadata"]
    for field in _NOT_OF_STATUS:
        if field in was:
            metadata[field] = was[field]
        elif field in metadata:
            del metadata[field]
    return result


def count_generation(resource: ApiResource, new: Raw, old: Raw) -> None:
    """Raise the generation if anything outside metadata and status changed."""
    if not (resource.generation or resource.crd is not None):
        return
    if content(new, with_status=not resource.has_status) != content(old, with_status=not resource.has_status):
        metadata = new["metadata"] = dict(new["metadata"])
        metadata["generation"] = int(old["metadata"].get("generation") or 0) + 1


def content(obj: Raw, *, with_status: bool = False) -> Raw:
    """Return what counts towards the generation."""
    skipped = ("metadata", "apiVersion", "kind") if with_status else ("metadata", "apiVersion", "kind", "status")
    return {key: value for key, value in obj.items() if key not in skipped}


def pod_qos_class(spec: Raw) -> str:
    """Return the QoS class: Guaranteed if every container has equal cpu and memory requests and limits."""
    guaranteed, burstable = True, False
    containers: list[Any] = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        resources = (container.get("resources") if isinstance(container, dict) else None) or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            if _positive(requests.get(name)) or _positive(limits.get(name)):
                burstable = True
            if not _positive(limits.get(name)) or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if guaranteed and burstable:
        return "Guaranteed"
    return "Burstable" if burstable else "BestEffort"


def _positive(amount: Any) -> bool:
    return amount not in (None, "", "0", 0)


def deep_copy(obj: Raw) -> Raw:
    """Return a copy that shares nothing that can be changed; objects are JSON, so that nothing occurs in itself."""
    copied: Raw = _copied(obj)
    return copied


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return value
