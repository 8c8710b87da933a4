"""Server-side apply: a manager says what it wants, the server merges it and remembers who owns which field.

A field that the manager applied before and now leaves out is removed, unless somebody else owns it too. A field that
somebody else owns and that would change is a conflict, unless the manager forces it. Lists merge by the keys of
the strategic patch; other lists are one field.
"""

from typing import TYPE_CHECKING, Any

from kubetide.api.values.patch import StrategicMergePatch
from kubetide.embedded.apiserver.admission.calls import Steps
from kubetide.embedded.apiserver.apply import fieldsets
from kubetide.embedded.apiserver.apply.managers import manager_of
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest import strategy
from kubetide.embedded.apiserver.rest.bodies import check_type
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import Cause, Raw, StatusError, bad_request
from kubetide.embedded.apiserver.validation import strictness

if TYPE_CHECKING:
    from kubetide.embedded.apiserver.rest.verbs import Verbs


def apply(verbs: "Verbs", request: Request, target: RequestTarget, resource: ApiResource, config: Raw) -> Steps:
    """Create or change an object so that it has what `config` says."""
    if not request.query.get("fieldManager"):
        raise bad_request(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        )
    check_type(resource, config)
    metadata = strategy.metadata_of(config)
    noticed = strictness.check_applied(request, resource, config)
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    metadata.setdefault("name", target.name)
    if metadata["name"] != target.name:
        raise bad_request("the name of the object does not match the name on the URL")
    if resource.namespaced:
        metadata.setdefault("namespace", target.namespace)
    applied = fieldsets.of_object(config)
    if target.subresource != "status":
        applied.pop("f:status", None)
    if verbs.store.get(resource.storage, target.key) is None:
        if target.subresource:
            verbs.existing(resource, target)
        if metadata.get("uid") or metadata.get("resourceVersion"):
            verbs.existing(resource, target)
        managed = [_entry(verbs, request, resource, "", applied)]
        return verbs.create_object(request, target, resource, config, managed=managed, noticed=noticed)

    def transform(current: Raw) -> Raw:
        mine, others = _owners(current, request, target.subresource)
        _check_conflicts(request, current, config, applied, others)
        gone = fieldsets.difference(mine, applied)
        for entry in others:
            gone = fieldsets.difference(gone, entry.get("fieldsV1") or {})
        merged: Raw = StrategicMergePatch(_no_nulls(config)).apply(fieldsets.remove(current, gone))
        merged["metadata"].setdefault("resourceVersion", "")
        return merged

    def manage(new: Raw, old: Raw) -> None:
        _, others = _owners(old, request, target.subresource)
        if request.flag("force"):
            others = [_give_up(entry, applied) for entry in others]
        kept = [entry for entry in others if entry.get("fieldsV1") != {}]
        new["metadata"]["managedFields"] = [*kept, _entry(verbs, request, resource, target.subresource, applied)]

    return verbs.modify(request, target, resource, transform, manage=manage, noticed=noticed)


def _entry(verbs: "Verbs", request: Request, resource: ApiResource, subresource: str, applied: Raw) -> Raw:
    entry: Raw = {
        "manager": manager_of(request),
        "operation": "Apply",
        "apiVersion": resource.api_version,
        "time": strategy.timestamp(verbs.clock.now()),
        "fieldsType": "FieldsV1",
        "fieldsV1": applied,
    }
    if subresource:
        entry["subresource"] = subresource
    return entry


def _owners(current: Raw, request: Request, subresource: str) -> tuple[Raw, list[Raw]]:
    """Return what this manager applied before, and the entries of everybody else."""
    mine: Raw = {}
    others: list[Raw] = []
    for entry in current["metadata"].get("managedFields") or ():
        is_mine = (
            entry.get("operation") == "Apply"
            and entry.get("manager") == manager_of(request)
            and (entry.get("subresource") or "") == subresource
        )
        if is_mine:
            mine = fieldsets.union(mine, entry.get("fieldsV1") or {})
        else:
            others.append(entry)
    return mine, others


def _check_conflicts(request: Request, current: Raw, config: Raw, applied: Raw, others: list[Raw]) -> None:
    if request.flag("force"):
        return
    would_change = fieldsets.intersection(fieldsets.changed(current, config), applied)
    causes: list[Cause] = []
    managers: list[str] = []
    for entry in others:
        clash = fieldsets.intersection(would_change, entry.get("fieldsV1") or {})
        for path in fieldsets.paths(clash):
            causes.append(Cause(path, "FieldManagerConflict", f'conflict with "{entry.get("manager")}"'))
            managers.append(str(entry.get("manager")))
    if causes:
        fields = ", ".join(cause.field for cause in causes)
        word = "conflict" if len(causes) == 1 else "conflicts"
        names = ", ".join(f'"{name}"' for name in sorted(set(managers)))
        text = f"Apply failed with {len(causes)} {word}: {word} with {names}: {fields}"
        raise StatusError(409, "Conflict", text, causes=causes)


def _give_up(entry: Raw, taken: Raw) -> Raw:
    return {**entry, "fieldsV1": fieldsets.difference(entry.get("fieldsV1") or {}, taken)}


def _no_nulls(value: Any) -> Any:
    """Drop nulls: in an applied configuration they say nothing."""
    if isinstance(value, dict):
        return {key: _no_nulls(member) for key, member in value.items() if member is not None}
    return [_no_nulls(item) for item in value] if isinstance(value, list) else value
