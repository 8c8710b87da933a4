"""What an API server serves: groups, versions, resources; and which resources a kind of a group has.

The answers are kept until `invalidate`, or `lifetime` has passed (a group that a CRD adds, a metrics API that comes
up). A name that is not found is looked up once more on a fresh cache before it counts as absent, unless the cache is
fresh already: a typo in one object must not turn into a stream of discovery requests.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.codec import decode
from kubetide.clock import Clock
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.kube.client.transport import Response

FRESH_SECONDS = 10.0


class SendRequest(Protocol):
    """The client's way to send a request."""

    def __call__(self, method: str, path: str, /, *, query: Mapping[str, str] | None = None) -> Awaitable[Response]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredResource:
    """One resource that a server serves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    scale_type: tuple[str, str] | None = None
    """The apiVersion and kind of its scale subresource, where it has one."""

    @property
    def api_version(self) -> str:
        """The group and version as objects spell them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """The plural with its group, as messages and the custom metrics API spell it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Version(ApiObject, frozen=True, kw_only=True, gc=False):
    group_version: str = ""
    version: str = ""


class _Group(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    versions: tuple[_Version, ...] | None = None
    preferred_version: _Version | None = None


class _GroupList(ApiObject, frozen=True, kw_only=True, gc=False):
    groups: tuple[_Group, ...] | None = None


class _ApiVersions(ApiObject, frozen=True, kw_only=True, gc=False):
    versions: tuple[str, ...] | None = None


class _Resource(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    group: str = ""
    version: str = ""
    kind: str = ""
    namespaced: bool = False


class _ResourceList(ApiObject, frozen=True, kw_only=True, gc=False):
    resources: tuple[_Resource, ...] | None = None


class Discovery:
    """A cached view of what the server serves."""

    def __init__(self, request: SendRequest, *, clock: Clock, lifetime: timedelta = timedelta(minutes=5)) -> None:
        self._request = request
        self._clock = clock
        self._lifetime = lifetime.total_seconds()
        self._groups: dict[str, tuple[str, ...]] | None = None
        self._resources: dict[tuple[str, str], tuple[DiscoveredResource, ...]] = {}
        self._kinds: dict[tuple[str, str], tuple[DiscoveredResource, ...]] = {}
        self._loaded_at = 0.0
        self._lock = asyncio.Lock()

    def invalidate(self) -> None:
        """Forget everything; the next question asks the server."""
        self._groups = None
        self._resources.clear()
        self._kinds.clear()

    async def groups(self, *, max_age: timedelta | None = None) -> Mapping[str, tuple[str, ...]]:
        """Return the versions of each group, the preferred one first; the core group is empty."""
        async with self._lock:
            if self._groups is not None and self._age() < self._limit(max_age):
                return self._groups
            self._resources.clear()
            self._kinds.clear()
            core = decode((await self._request("GET", "/api")).body, _ApiVersions, what="/api")
            listed = decode((await self._request("GET", "/apis")).body, _GroupList, what="/apis")
            found = {"": core.versions or ()}
            for group in listed.groups or ():
                found[group.name] = _preferred_first(group)
            self._groups = found
            self._loaded_at = self._clock.monotonic()
            return found

    async def versions(self, group: str, *, max_age: timedelta | None = None) -> tuple[str, ...]:
        """Return the versions of a group, the preferred one first; none when it is not served."""
        return (await self.groups(max_age=max_age)).get(group, ())

    async def resources(self, group: str, version: str) -> tuple[DiscoveredResource, ...]:
        """Return the resources of one group version; none when it is not served."""
        await self.groups()
        if (group, version) not in self._resources:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                body = (await self._request("GET", path)).body
            except NotFound:
                return ()
            self._resources[group, version] = _with_scales(
                decode(body, _ResourceList, what=path).resources or (), group, version
            )
        return self._resources[group, version]

    async def resources_for(
        self, group: str, kind: str, *, max_age: timedelta | None = None
    ) -> tuple[DiscoveredResource, ...]:
        """Return the resources of a kind in a group, the preferred version first."""
        if (group, kind) in self._kinds and self._age() < self._limit(max_age):
            return self._kinds[group, kind]
        found = await self._find(group, kind, max_age)
        if not found and self._age() >= FRESH_SECONDS:
            self.invalidate()
            found = await self._find(group, kind, max_age)
        return found

    def _age(self) -> float:
        return self._clock.monotonic() - self._loaded_at

    def _limit(self, max_age: timedelta | None) -> float:
        return self._lifetime if max_age is None else min(self._lifetime, max_age.total_seconds())

    async def _find(self, group: str, kind: str, max_age: timedelta | None) -> tuple[DiscoveredResource, ...]:
        found: list[DiscoveredResource] = []
        failure: ApiError | None = None
        for version in await self.versions(group, max_age=max_age):
            try:
                found += [each for each in await self.resources(group, version) if each.kind == kind]
            except ApiError as error:
                # One version whose server is down must not hide the others.
                failure = error
        if not found and failure is not None:
            raise failure
        if found and failure is None:
            self._kinds[group, kind] = tuple(found)
        return tuple(found)


def _preferred_first(group: _Group) -> tuple[str, ...]:
    preferred = group.preferred_version.version if group.preferred_version is not None else ""
    versions = [each.version for each in group.versions or ()]
    return tuple(sorted(versions, key=lambda version: version != preferred))


def _with_scales(listed: tuple[_Resource, ...], group: str, version: str) -> tuple[DiscoveredResource, ...]:
    scales: dict[str, tuple[str, str]] = {}
    for each in listed:
        plural, _, subresource = each.name.partition("/")
        if subresource == "scale":
            # An entry that does not say its own group and version is of its parent's.
            wire = (each.group, each.version) if each.group and each.version else (group, version)
            scales[plural] = ("/".join(part for part in wire if part), each.kind)
    return tuple(
        DiscoveredResource(
            group=group,
            version=version,
            plural=each.name,
            kind=each.kind,
            namespaced=each.namespaced,
            scale_type=scales.get(each.name),
        )
        for each in listed
        if "/" not in each.name
    )
