"""Who wrote what: the entries of `metadata.managedFields`.

Full ownership tracking costs time on every write and matters to server-side apply only, so it is kept for objects
that were applied at least once, and, without fields, for autoscalers, whose writers show whether another controller
is at work, and for events, which go some time after their last write.
"""

from datetime import datetime

from kubetide.embedded.apiserver.apply import fieldsets
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.requests import Request
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.rest.strategy import timestamp
from kubetide.embedded.apiserver.storage.objects import ResourceKey

_ALWAYS = (ResourceKey("autoscaling", "horizontalpodautoscalers"), ResourceKey("", "events"))


def manager_of(request: Request) -> str:
    """Return the name a writer goes by: the one it states, else the first word of its user agent."""
    return request.query.get("fieldManager") or request.user_agent.partition("/")[0] or "unknown"


def record(
    resource: ApiResource,
    request: Request,
    new: Raw,
    old: Raw | None,
    *,
    now: datetime,
    subresource: str = "",
) -> None:
    """Note an update (not an apply) in the new object."""
    before = (old["metadata"].get("managedFields") if old is not None else None) or []
    metadata = new["metadata"]
    if metadata.get("managedFields") == []:
        before = []
    applied = "Apply" in [entry.get("operation") for entry in before]
    if not applied and resource.storage not in _ALWAYS:
        if not before:
            metadata.pop("managedFields", None)
        return
    entry: Raw = {
        "manager": manager_of(request),
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": timestamp(now),
    }
    if subresource:
        entry["subresource"] = subresource
    entries = list(before)
    if applied:
        changed = fieldsets.changed(old or {}, new)
        if not changed:
            metadata["managedFields"] = entries
            return
        entries = [_without(item, changed) for item in entries]
        same = next((item for item in entries if _is_by(item, entry)), None)
        owned = fieldsets.union(same.get("fieldsV1") or {} if same is not None else {}, changed)
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = owned
    kept = [item for item in entries if item.get("fieldsV1") != {} and not _is_by(item, entry)]
    metadata["managedFields"] = [*kept, entry]


def _without(item: Raw, changed: Raw) -> Raw:
    """Take changed fields away from other writers; an applier keeps what it applied until it applies again."""
    if item.get("operation") == "Apply" or "fieldsV1" not in item:
        return item
    return {**item, "fieldsV1": fieldsets.difference(item["fieldsV1"], changed)}


def _is_by(item: Raw, writer: Raw) -> bool:
    """Whether an entry is about the same writer, by the same way, as another."""
    return bool(
        item.get("manager") == writer["manager"]
        and item.get("operation") == writer["operation"]
        and item.get("apiVersion") == writer["apiVersion"]
        and item.get("subresource") == writer.get("subresource")
    )


def same_but_for_times(new: Raw, old: Raw) -> bool:
    """Whether nothing changed apart from the times in managedFields, so that nothing need be written."""
    if len(new) != len(old) or new.get("status") != old.get("status"):
        return False
    for key, value in new.items():
        if key != "metadata" and value != old.get(key):
            return False
    if new["metadata"] == old["metadata"]:
        return True
    return "managedFields" in new["metadata"] and _timeless(new["metadata"]) == _timeless(old["metadata"])


def _timeless(metadata: Raw) -> Raw:
    entries = metadata.get("managedFields") or ()
    return {**metadata, "managedFields": [{k: v for k, v in entry.items() if k != "time"} for entry in entries]}
