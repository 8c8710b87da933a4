"""Discovery: which groups, versions and resources there are, in the legacy and in the aggregated form.

Clients choose by the `Accept` header: `as=APIGroupDiscoveryList` gives everything below `/api` or `/apis` at once.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from kubetide.embedded.apiserver.resources import ApiResource, Registry, version_rank
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, no_such_path

_SUBRESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "status": ("get", "patch", "update"),
    "scale": ("get", "patch", "update"),
    "resize": ("get", "patch", "update"),
    "finalize": ("update",),
    "eviction": ("create",),
    "binding": ("create",),
    "token": ("create",),
    "proxy": ("get",),
}
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "v1", "Binding"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a resource list: a resource or a subresource, built in or served by somebody else."""

    name: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


@dataclass(slots=True)
class Extra:
    """Groups that are served without being in the registry, such as the metrics APIs."""

    groups: dict[str, dict[str, list[Listed]]] = field(default_factory=dict)


class Discovery:
    """Answers the paths above resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(self, request: Request, parts: list[str], extra: Extra) -> Raw:
        """Return the document for /api, /apis and what is below them up to a version."""
        match parts:
            case ["api"]:
                if _aggregated(request):
                    return self._aggregate([("", ["v1"])], extra)
                return {
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
                }
            case ["apis"]:
                groups = self.groups(extra)
                if _aggregated(request):
                    return self._aggregate(list(groups.items()), extra)
                named = [_group(group, versions) for group, versions in groups.items()]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
            case ["apis", group]:
                versions = self.groups(extra).get(group)
                if not versions:
                    raise no_such_path()
                return {**_group(group, versions), "kind": "APIGroup", "apiVersion": "v1"}
            case ["api", "v1"]:
                return self._resource_list("", "v1", extra)
            case ["apis", group, version]:
                return self._resource_list(group, version, extra)
        raise no_such_path()

    def groups(self, extra: Extra) -> dict[str, list[str]]:
        """Return all named groups with their versions, the best first."""
        found = self._registry.groups()
        for group, versions in extra.groups.items():
            found.setdefault(group, sorted(versions, key=version_rank))
        return found

    def listed(self, group: str, version: str, extra: Extra) -> list[Listed]:
        """Return everything in one version of a group."""
        if group in extra.groups:
            return extra.groups[group].get(version, [])
        found: list[Listed] = []
        for resource in self._registry.all():
            if resource.group == group and resource.version == version:
                found.append(_listed(resource))
                found.extend(_listed_subresource(resource, name) for name in resource.subresources)
        return sorted(found, key=lambda item: item.name)

    def _resource_list(self, group: str, version: str, extra: Extra) -> Raw:
        listed = self.listed(group, version, extra)
        if not listed and version not in extra.groups.get(group, {}):
            raise no_such_path()
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [_legacy(item, group, version) for item in listed],
        }

    def _aggregate(self, groups: list[tuple[str, list[str]]], extra: Extra) -> Raw:
        items = []
        for group, versions in groups:
            shown = [
                {
                    "version": version,
                    "resources": _nested(self.listed(group, version, extra), group, version),
                    "freshness": "Current",
                }
                for version in versions
            ]
            items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": shown})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(request: Request) -> bool:
    return "as=APIGroupDiscoveryList" in request.accept


def aggregated_type(request: Request) -> str:
    """Return the content type of a discovery answer: clients check that they got what they asked for."""
    if _aggregated(request):
        version = "v2" if "v=v2;" in request.accept + ";" or "v=v2," in request.accept else "v2beta1"
        return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    return "application/json"


def _group(group: str, versions: list[str]) -> Raw:
    shown = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": shown, "preferredVersion": shown[0]}


def _listed(resource: ApiResource) -> Listed:
    return Listed(
        resource.plural,
        resource.kind,
        resource.namespaced,
        resource.verbs,
        resource.group,
        resource.version,
        resource.singular,
        resource.short_names,
        resource.categories,
    )


def _listed_subresource(resource: ApiResource, name: str) -> Listed:
    group, version, kind = _SUBRESOURCE_KINDS.get(name, (resource.group, resource.version, resource.kind))
    verbs = _SUBRESOURCE_VERBS.get(name, ("get",))
    return Listed(f"{resource.plural}/{name}", kind, resource.namespaced, verbs, group, version)


def _legacy(item: Listed, group: str, version: str) -> Raw:
    shown: Raw = {
        "name": item.name,
        "singularName": item.singular,
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": list(item.verbs),
    }
    if (item.group, item.version) not in ((group, version), ("", "")) or ("/" in item.name and item.group != group):
        shown["group"], shown["version"] = item.group, item.version
    if item.short_names:
        shown["shortNames"] = list(item.short_names)
    if item.categories:
        shown["categories"] = list(item.categories)
    return shown


def _nested(listed: list[Listed], group: str, version: str) -> list[Raw]:
    """Return resources with their subresources below them, as the aggregated form has them."""
    by_name: dict[str, Raw] = {}
    for item in listed:
        kind = {"group": item.group or group, "version": item.version or version, "kind": item.kind}
        if item.group == "" and item.version:
            kind["group"] = item.group
        plural, slash, subresource = item.name.partition("/")
        if not slash:
            shown: Raw = {
                "resource": plural,
                "responseKind": kind,
                "scope": "Namespaced" if item.namespaced else "Cluster",
                "singularResource": item.singular,
                "verbs": list(item.verbs),
            }
            if item.short_names:
                shown["shortNames"] = list(item.short_names)
            if item.categories:
                shown["categories"] = list(item.categories)
            by_name[plural] = shown
        elif plural in by_name:
            below = {"subresource": subresource, "responseKind": kind, "verbs": list(item.verbs)}
            by_name[plural].setdefault("subresources", []).append(below)
    return list(by_name.values())


Forward = Callable[[Raw, Request], Awaitable[Answer]]


async def discover(forward: Forward, service: Raw, group: str, version: str) -> list[Listed]:
    """Return the resources that an aggregated server lists; none while it cannot be reached."""
    try:
        answer = await forward(service, Request("GET", f"/apis/{group}/{version}"))
        body = msgspec.json.decode(answer.body) if answer.status == 200 else {}
    except (StatusError, msgspec.DecodeError):
        return []
    return [
        Listed(
            str(item.get("name")),
            str(item.get("kind")),
            bool(item.get("namespaced")),
            tuple(item.get("verbs") or ()),
            str(item.get("group") or group),
            str(item.get("version") or version),
            str(item.get("singularName") or ""),
            tuple(item.get("shortNames") or ()),
            tuple(item.get("categories") or ()),
        )
        for item in body.get("resources") or ()
        if isinstance(item, dict)
    ]
