"""Reading and writing the scale of anything that has one, custom resources included.

A target is found by group and kind alone; the version in the reference is not looked at. Every resource that fits
is asked in the order of preference, the first answer counts, and when none answers the first error does. A write
sends back what was read with only `spec.replicas` changed, so that its resource version makes it a
compare-and-swap.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from kubetide.api.objects.hpa import ManagedFieldsEntry
from kubetide.api.objects.scheme import escaped
from kubetide.api.values.codec import decode_raw, encode
from kubetide.api.values.selectors import Operator, Requirement, Selector, parse_selector
from kubetide.errors import InvalidInput, KubetideError, SelectorError
from kubetide.kube.client.client import Client
from kubetide.kube.client.discovery import DiscoveredResource

SCALE_VERSIONS = ("autoscaling/v1", "extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
"""Where a Scale may come from; older servers have one in the group of the workload."""

KIND_AGE = timedelta(seconds=30)
"""How long it is taken for granted which resource a kind means: a custom resource may change its versions."""


class InvalidApiVersion(InvalidInput):
    """An apiVersion is not `version` or `group/version`."""


class NoMapping(KubetideError):
    """The server serves no resource of that group and kind."""


class ScaleUnreadable(KubetideError):
    """A scale object came, and its selector cannot be used."""


class ScaleUnsupported(KubetideError):
    """The resource has no scale subresource to write to."""


class TargetReference(Protocol):
    """What a user names as the thing to scale."""

    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...


class ScaleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The scale of one object as it was read; `raw` is what a write sends back."""

    resource: DiscoveredResource
    namespace: str
    name: str
    spec_replicas: int
    status_replicas: int
    selector: str
    raw: Mapping[str, Any]
    managed_fields: tuple[ManagedFieldsEntry, ...] | None = None
    """Who wrote the object in the version that a write is held to, where that is known without asking."""


class ScaleClient:
    """Reads and writes scale subresources."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, namespace: str, reference: TargetReference) -> ScaleTarget:
        """Return the scale of the target that a reference names."""
        resource, raw = await self.get_raw(namespace, reference)
        return target_from(resource, namespace, reference.name, raw)

    async def get_raw(self, namespace: str, reference: TargetReference) -> tuple[DiscoveredResource, dict[str, Any]]:
        """Return the scale object as served, and the resource it belongs to."""
        first: KubetideError | None = None
        for resource in await self.mappings(reference):
            try:
                return resource, await self.read_raw(resource, namespace, reference.name)
            except KubetideError as error:
                first = first or error
        assert first is not None  # mappings are never empty
        raise first

    async def mappings(self, reference: TargetReference) -> tuple[DiscoveredResource, ...]:
        """Return the resources of the reference's group and kind, each in the version its server prefers."""
        group = group_of_reference(reference.api_version)
        found: dict[str, DiscoveredResource] = {}
        for resource in await self._client.discovery.resources_for(group, reference.kind, max_age=KIND_AGE):
            found.setdefault(resource.plural, resource)
        if not found:
            raise NoMapping(f'no matches for kind "{reference.kind}" in group "{group}"')
        return tuple(found.values())

    async def read(self, resource: DiscoveredResource, namespace: str, name: str) -> ScaleTarget:
        """Read the scale of one object of a known resource: one request."""
        return target_from(resource, namespace, name, await self.read_raw(resource, namespace, name))

    async def read_raw(self, resource: DiscoveredResource, namespace: str, name: str) -> dict[str, Any]:
        """Read the scale of one object of a known resource as served."""
        path = scale_path(resource, namespace, name)
        return _object(decode_raw((await self._client.request("GET", path)).body, what=path))

    async def refresh(self, target: ScaleTarget) -> ScaleTarget:
        """Read the same scale again."""
        return await self.read(target.resource, target.namespace, target.name)

    async def set(self, target: ScaleTarget, replicas: int, *, field_manager: str | None = None) -> ScaleTarget:
        """Write the replicas, if the scale is still what was read; raises Conflict if not."""
        scale_type = await self._scale_type(target.resource)
        path = scale_path(target.resource, target.namespace, target.name)
        body = encode(with_replicas(target, replicas, scale_type))
        query = {"fieldManager": field_manager} if field_manager else None
        response = await self._client.request("PUT", path, query=query, body=body)
        raw = _object(decode_raw(response.body, what=path))
        return target_from(target.resource, target.namespace, target.name, raw)

    async def _scale_type(self, resource: DiscoveredResource) -> tuple[str, str]:
        for each in await self._client.discovery.resources(resource.group, resource.version):
            if each.plural == resource.plural and each.scale_type is not None:
                return each.scale_type
        raise ScaleUnsupported(
            f"could not find proper group-version for scale subresource of {resource.api_version}, "
            f"Resource={resource.plural}: could not find scale subresource in discovery information"
        )


def group_of_reference(api_version: str) -> str:
    """Return the group of an apiVersion; none and the empty text mean the core group."""
    parts = api_version.split("/")
    if len(parts) > 2:
        raise InvalidApiVersion(f"unexpected GroupVersion string: {api_version}", field="apiVersion")
    return parts[0] if len(parts) == 2 else ""


def scale_path(resource: DiscoveredResource, namespace: str, name: str) -> str:
    """Return the path of a scale subresource."""
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{escaped(namespace)}" if namespace else ""
    return f"{base}{scope}/{resource.plural}/{escaped(name)}/scale"


def target_from(resource: DiscoveredResource, namespace: str, name: str, raw: Mapping[str, Any]) -> ScaleTarget:
    """Return the scale that a served object describes, its selector normalised."""
    served = (raw.get("apiVersion"), raw.get("kind"))
    if any(served) and (served[1] != "Scale" or served[0] not in SCALE_VERSIONS):
        raise _unreadable(f"it is a {served[1]} of {served[0]}")
    spec, status = _part(raw, "spec"), _part(raw, "status")
    try:
        selector = normalise_selector(_selector_text(status))
    except SelectorError as error:
        raise _unreadable(f"failed to parse target selector: {error}") from error
    return ScaleTarget(
        resource=resource,
        namespace=namespace,
        name=name,
        spec_replicas=_count(spec, "spec.replicas"),
        status_replicas=_count(status, "status.replicas"),
        selector=selector,
        raw=raw,
    )


def with_replicas(target: ScaleTarget, replicas: int, scale_type: tuple[str, str]) -> dict[str, Any]:
    """Return the object to write: what was read, in the type that is served, with other replicas."""
    api_version, kind = scale_type
    body = {**target.raw, "apiVersion": api_version, "kind": kind}
    body["spec"] = {**(target.raw.get("spec") or {}), "replicas": replicas}
    status = target.raw.get("status") or {}
    if not isinstance(status.get("selector", ""), str) or "targetSelector" in status:
        # The older Scale types keep the selector as a map; the one served today as text.
        body["status"] = {"replicas": target.status_replicas, "selector": target.selector}
    return body


def _unreadable(why: str) -> ScaleUnreadable:
    return ScaleUnreadable(
        f"received an object from a /scale endpoint which was not convertible to autoscaling Scale: {why}"
    )


def _object(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _unreadable("it is no object")
    return raw


def _part(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    part = raw.get(field) or {}
    if not isinstance(part, Mapping):
        raise _unreadable(f"{field} is no object")
    return part


def _count(part: Mapping[str, Any], field: str) -> int:
    count = part.get("replicas") or 0
    if not isinstance(count, int) or isinstance(count, bool):
        raise _unreadable(f"{field} is no whole number")
    return count


def _selector_text(status: Mapping[str, Any]) -> str:
    if status.get("targetSelector"):
        return str(status["targetSelector"])
    selector = status.get("selector") or ""
    if isinstance(selector, Mapping):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return str(selector)


@lru_cache(maxsize=8192)
def normalise_selector(text: str) -> str:
    """Return the selector as a label-selector object would print it; raise where such an object cannot say it."""
    equal: dict[str, Requirement] = {}
    others: list[Requirement] = []
    for requirement in parse_selector(text).requirements:
        match requirement.operator:
            case Operator.EQUALS | Operator.DOUBLE_EQUALS:
                equal[requirement.key] = Requirement(requirement.key, Operator.EQUALS, requirement.values)
            case Operator.IN | Operator.NOT_IN | Operator.EXISTS | Operator.NOT_EXISTS:
                others.append(requirement)
            case _:
                raise SelectorError(f'"{requirement.operator.value}" is not supported in label selectors')
    return str(Selector(tuple(sorted([*equal.values(), *others], key=lambda each: each.key))))
