"""CustomResourceDefinitions: from the object a user writes to resources that are served.

All versions of a custom resource share storage and, with conversion strategy None, differ in apiVersion only; each
has its own schema, subresources and printer columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kubetide.embedded import schema as structural
from kubetide.embedded.conditions import broken_rules, has_rules
from kubetide.embedded.objects import ResourceKey
from kubetide.embedded.resources import ApiResource
from kubetide.embedded.status import Cause, Raw


@dataclass(frozen=True, slots=True, eq=False)
class CrdVersion:
    """One version of one custom resource."""

    group: str
    version: str
    storage_version: str
    schema: Raw
    subresources: Raw = field(default_factory=dict)
    columns: tuple[Raw, ...] = ()
    selectable: tuple[str, ...] = ()
    ruled: bool = False
    """Whether the schema has CEL rules."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def store(self, obj: Raw, *, pruned: bool = False) -> Raw:
        """Return an object of this version as it is stored: pruned, in the storage version."""
        if not pruned:
            structural.prune(obj, self.schema, root=True)
        if self.version != self.storage_version:
            obj = {**obj, "apiVersion": f"{self.group}/{self.storage_version}"}
        return obj

    def show(self, obj: Raw) -> Raw:
        """Return a stored object in this version, with defaults that its schema gained since."""
        obj["apiVersion"] = self.api_version
        structural.prune(obj, self.schema, root=True)
        structural.default(obj, self.schema)
        return obj

    def default(self, obj: Raw) -> None:
        structural.default(obj, self.schema)

    def prune(self, obj: Raw) -> list[str]:
        """Remove what the schema does not name, in place, and return the paths that went."""
        return structural.prune(obj, self.schema, root=True)

    def problems(self, obj: Raw, old: Raw | None = None) -> list[Cause]:
        """Return what breaks the schema, or, if nothing does, what breaks its rules."""
        broken = list(structural.problems(obj, self.schema))
        if not broken and self.ruled:
            broken = list(broken_rules(obj, self.schema, old=old))
        return broken

    def scale_paths(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return where the replica count, the current count and the selector are."""
        scale = self.subresources.get("scale") or {}
        return (
            json_path(scale.get("specReplicasPath") or ".spec.replicas"),
            json_path(scale.get("statusReplicasPath") or ".status.replicas"),
            json_path(scale.get("labelSelectorPath") or ""),
        )


def json_path(text: str) -> tuple[str, ...]:
    """Return the members of a simple path such as `.spec.replicas`."""
    return tuple(part for part in text.strip(".").split(".") if part)


def resources_of(crd: Raw) -> list[ApiResource]:
    """Return the resources that a CRD defines, one per served version."""
    spec = crd.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or ()
    storage_version = next((str(v.get("name")) for v in versions if v.get("storage")), "")
    group, plural = str(spec.get("group") or ""), str(names.get("plural") or "")
    found: list[ApiResource] = []
    for version in versions:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        found.append(
            ApiResource(
                group=group,
                version=str(version["name"]),
                plural=plural,
                kind=str(names.get("kind") or ""),
                list_kind=str(names.get("listKind") or ""),
                singular=str(names.get("singular") or ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                namespaced=spec.get("scope") == "Namespaced",
                subresources=tuple(name for name in ("status", "scale") if name in subresources),
                storage=ResourceKey(group, plural),
                storage_version=storage_version,
                crd=CrdVersion(
                    group=group,
                    version=str(version["name"]),
                    storage_version=storage_version,
                    schema=schema,
                    ruled=has_rules(schema),
                    subresources=subresources,
                    columns=tuple(version.get("additionalPrinterColumns") or ()),
                    selectable=tuple(
                        str(item.get("jsonPath", "")).lstrip(".") for item in version.get("selectableFields") or ()
                    ),
                ),
            )
        )
    return found


def problems(crd: Raw) -> Iterable[Cause]:
    """Yield what is wrong with a CRD."""
    spec = crd.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or ()
    name = crd["metadata"].get("name")
    if name != f"{names.get('plural')}.{spec.get('group')}":
        yield _invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    for member in ("plural", "kind"):
        if not names.get(member):
            yield Cause(f"spec.names.{member}", "FieldValueRequired", "Required value")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        text = f'Unsupported value: "{spec.get("scope")}": supported values: "Cluster", "Namespaced"'
        yield Cause("spec.scope", "FieldValueNotSupported", text)
    if not versions:
        yield Cause("spec.versions", "FieldValueRequired", "Required value: must have at least one version")
    if sum(1 for version in versions if version.get("storage")) != 1:
        yield _invalid("spec.versions", "", "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield Cause(where, "FieldValueRequired", "Required value: schemas are required")


def established(crd: Raw, now: str) -> Raw:
    """Return the status of a CRD whose resources are served."""
    names = (crd.get("spec") or {}).get("names") or {}
    versions = (crd.get("spec") or {}).get("versions") or ()

    def condition(kind: str, reason: str, message: str) -> Raw:
        return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}

    return {
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": [str(version["name"]) for version in versions if version.get("storage")],
    }


def _invalid(path: str, value: Any, rule: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f'Invalid value: "{value}": {rule}')
