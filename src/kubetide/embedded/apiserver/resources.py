"""Which resources the API server knows: the built-in table, and what CRDs add to it.

An `ApiResource` is one resource in one version. Versions of the same resource share storage: the object is kept in
`storage_version` and converted when it is read or written through another one.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey

if TYPE_CHECKING:
    from kubetide.embedded.apiserver.crds.crds import CrdVersion

READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)

Convert = Callable[[Raw], Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """One resource in one version: its names, its scope and how its objects behave."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = READ_WRITE
    subresources: tuple[str, ...] = ()
    storage: ResourceKey
    storage_version: str
    generation: bool = False
    """Whether a change of anything but metadata and status counts as a new generation."""
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    crd: "CrdVersion | None" = field(default=None, compare=False)
    api_version: str = field(init=False)
    """Group and version as objects spell them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def to_list_kind(self) -> str:
        return self.list_kind or f"{self.kind}List"


class Registry:
    """All resources being served, by group, version and plural."""

    def __init__(self, resources: Iterable[ApiResource]) -> None:
        self._builtin = {(r.group, r.version, r.plural): r for r in resources}
        self._custom: dict[tuple[str, str, str], ApiResource] = {}
        self.generation = 0
        """Grows with every change, so that discovery documents can be cached."""

    def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        key = (group, version, plural)
        return self._builtin.get(key) or self._custom.get(key)

    def all(self) -> list[ApiResource]:
        return [*self._builtin.values(), *self._custom.values()]

    def by_kind(self, group: str, kind: str, version: str | None = None) -> ApiResource | None:
        """Return the resource of a kind: in the version given, else in its storage version."""
        best: ApiResource | None = None
        for resource in self.all():
            if resource.group != group or resource.kind != kind:
                continue
            if version is None and resource.version == resource.storage_version:
                return resource
            if version is not None and resource.version == version:
                return resource
            best = best or resource
        return best if version is None else None

    def set_custom(self, resources: Iterable[ApiResource]) -> None:
        """Replace everything that CRDs added. A built-in of the same name wins."""
        self._custom = {(r.group, r.version, r.plural): r for r in resources}
        self.generation += 1

    def groups(self) -> dict[str, list[str]]:
        """Return the versions served of each named group, the best first."""
        found: dict[str, set[str]] = {}
        for resource in self.all():
            if resource.group:
                found.setdefault(resource.group, set()).add(resource.version)
        return {group: sorted(versions, key=version_rank) for group, versions in sorted(found.items())}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sort key that puts v2 before v1, v1 before v1beta2, v1beta1 before v1alpha1, and the rest last by name."""
    match = re.fullmatch(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?", version)
    if match is None:
        return (1, 0, 0, version)
    stage = {None: 2, "beta": 1, "alpha": 0}[match.group(2)]
    return (0, -(stage * 1_000_000 + int(match.group(1)) * 1_000), -int(match.group(3) or 0), "")
