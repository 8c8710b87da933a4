"""CustomResourceDefinitions: from the object a user writes to resources that are served.

All versions of a custom resource share storage and, with conversion strategy None, differ in apiVersion only; with
strategy Webhook `conversion` makes one from another. Each has its own schema, subresources and printer columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kubetide.embedded.apiserver.cel.rules import broken_rules, has_rules, rule_patterns
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Cause, Raw
from kubetide.embedded.apiserver.storage.objects import Entry, ResourceKey
from kubetide.embedded.apiserver.validation import schema as structural
from kubetide.embedded.apiserver.validation.budget import CannotJudge
from kubetide.embedded.apiserver.validation.patterns import PatternError, compile_pattern
from kubetide.errors import KubetideError

REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of ConversionReview that are spoken with webhooks."""


class Unconverted(KubetideError):
    """An object was about to be shown in a version that only a webhook can make."""


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
    webhook: Raw | None = None
    """How to reach the conversion webhook, if there is one."""
    storage_schema: Raw = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def store(self, obj: Raw, *, pruned: bool = False) -> Raw:
        """Return an object of this version as it is stored: pruned, in the storage version."""
        if not pruned:
            structural.prune(obj, self.schema, root=True)
        if self.version != self.storage_version and self.webhook is None:
            obj = {**obj, "apiVersion": f"{self.group}/{self.storage_version}"}
        return obj

    def show(self, obj: Raw) -> Raw:
        """Return a stored object in this version, with defaults that its schema gained since.

        One of another version must have been through the conversion webhook, if there is one.
        """
        if self.converts(obj):
            raise Unconverted(f"{obj.get('apiVersion')} is not {self.api_version} yet")
        obj["apiVersion"] = self.api_version
        structural.prune(obj, self.schema, root=True)
        structural.default(obj, self.schema)
        return obj

    def converts(self, obj: Raw) -> bool:
        """Whether an object has to go through the webhook to be of this version."""
        return self.webhook is not None and obj.get("apiVersion") != self.api_version

    def converts_to_store(self) -> bool:
        """Whether an object of this version has to go through the webhook to be stored."""
        return self.webhook is not None and self.version != self.storage_version

    def is_ready(self, entry: Entry) -> bool:
        """Whether an entry can be shown in this version as it is."""
        return not self.converts(entry.obj) or entry.has_view(self.api_version)

    def stored(self, obj: Raw) -> Raw:
        """Return what the webhook made of an object, as the schema of the storage version wants it."""
        structural.prune(obj, self.storage_schema, root=True)
        structural.default(obj, self.storage_schema)
        return obj

    def default(self, obj: Raw) -> None:
        structural.default(obj, self.schema)

    def prune(self, obj: Raw) -> list[str]:
        """Remove what the schema does not name, in place, and return the paths that went."""
        return structural.prune(obj, self.schema, root=True)

    def problems(self, obj: Raw, old: Raw | None = None) -> list[Cause]:
        """Return what breaks the schema, or, if nothing does, what breaks its rules."""
        try:
            broken = list(structural.problems(obj, self.schema))
            if not broken and self.ruled:
                broken = list(broken_rules(obj, self.schema, old=old))
        except CannotJudge as error:
            return [Cause(error.field, "FieldValueInvalid", f"Invalid value: {error.message}")]
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
    storage_schema = next((_schema_of(v) for v in versions if v.get("storage")), {})
    conversion = spec.get("conversion") or {}
    webhook = (conversion.get("webhook") or {}) if conversion.get("strategy") == "Webhook" else None
    group, plural = str(spec.get("group") or ""), str(names.get("plural") or "")
    found: list[ApiResource] = []
    for version in versions:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        schema = _schema_of(version)
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
                    webhook=webhook,
                    storage_schema=storage_schema,
                    subresources=subresources,
                    columns=tuple(version.get("additionalPrinterColumns") or ()),
                    selectable=tuple(
                        str(item.get("jsonPath", "")).lstrip(".") for item in version.get("selectableFields") or ()
                    ),
                ),
            )
        )
    return found


def _schema_of(version: Raw) -> Raw:
    schema: Raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


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
        yield from _pattern_problems(_schema_of(version), f"spec.versions[{index}].schema.openAPIV3Schema")
    listed = {str(version.get("name")) for version in versions}
    for index, name in enumerate((crd.get("status") or {}).get("storedVersions") or ()):
        if name not in listed:
            rule = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} "
                f"and removes {name} from status.storedVersions"
            )
            yield _invalid(f"status.storedVersions[{index}]", name, rule)
    yield from _conversion_problems(spec.get("conversion") or {})


def _pattern_problems(schema: Raw, path: str) -> Iterable[Cause]:
    """Yield regular expressions that RE2 does not understand, in schemas and written out in their rules."""
    for where, pattern in (*structural.patterns(schema, path), *rule_patterns(schema, path)):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            yield _invalid(where, pattern, f"must be a valid regular expression (RE2): {error}")


def _conversion_problems(conversion: Raw) -> Iterable[Cause]:
    strategy, webhook = conversion.get("strategy") or "None", conversion.get("webhook") or {}
    client, spoken = webhook.get("clientConfig"), webhook.get("conversionReviewVersions")
    at_client, at_versions = "spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions"
    if strategy not in ("None", "Webhook"):
        text = f'Unsupported value: "{strategy}": supported values: "None", "Webhook"'
        yield Cause("spec.conversion.strategy", "FieldValueNotSupported", text)
    elif strategy == "None":
        for where, present in ((at_client, client), (at_versions, spoken)):
            if present:
                text = "Forbidden: should not be set when strategy is not set to Webhook"
                yield Cause(where, "FieldValueForbidden", text)
    else:
        if client is None:
            text = "Required value: required when strategy is set to Webhook"
            yield Cause(at_client, "FieldValueRequired", text)
        elif bool(client.get("url")) == bool(client.get("service")):
            yield Cause(at_client, "FieldValueRequired", "Required value: exactly one of url or service is required")
        if not spoken:
            yield Cause(at_versions, "FieldValueRequired", "Required value")
        elif not set(spoken) & set(REVIEW_VERSIONS):
            listed = ",".join(f'"{each}"' for each in spoken)
            text = f"Invalid value: [{listed}]: must include at least one of {', '.join(REVIEW_VERSIONS)}"
            yield Cause(at_versions, "FieldValueInvalid", text)


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


def note_storage_version(crd: Raw) -> None:
    """Add the storage version to those in which objects may be stored, in place."""
    status = dict(crd.get("status") or {})
    known = list(status.get("storedVersions") or ())
    for version in (crd.get("spec") or {}).get("versions") or ():
        if version.get("storage") and version["name"] not in known:
            crd["status"] = {**status, "storedVersions": [*known, str(version["name"])]}


def _invalid(path: str, value: Any, rule: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f'Invalid value: "{value}": {rule}')
