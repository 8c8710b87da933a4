"""What requests carry beside an object: patches, selectors, dry run, field manager, options of deletions, evictions."""

from typing import Any, Protocol


class Patch(Protocol):
    """A change as a value: `api.patch` has the three kinds."""

    @property
    def content_type(self) -> str:
        """The media type of the patch."""
        ...

    def encode(self) -> bytes:
        """Return the body to send."""
        ...


def selectors(label_selector: str, field_selector: str, shard_selector: str = "") -> dict[str, str]:
    """Return the query that selects objects by their labels and fields, and by the hash of a field."""
    query = {}
    if label_selector:
        query["labelSelector"] = label_selector
    if field_selector:
        query["fieldSelector"] = field_selector
    if shard_selector:
        query["shardSelector"] = shard_selector
    return query


def write_options(field_manager: str | None, *, dry_run: bool) -> dict[str, str]:
    """Return the query of a write."""
    query = {"dryRun": "All"} if dry_run else {}
    if field_manager:
        query["fieldManager"] = field_manager
    return query


def delete_options(
    grace_period_seconds: int | None, propagation: str | None, *, uid: str | None, resource_version: str | None
) -> dict[str, Any]:
    """Return the body of a deletion; with `uid` or `resource_version`, of that object only."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if preconditions := _preconditions(uid, resource_version):
        options["preconditions"] = preconditions
    return options


def eviction(
    name: str, namespace: str, grace_period_seconds: int | None, *, uid: str | None, dry_run: bool
) -> dict[str, Any]:
    """Return the body that asks for the eviction of a pod; with `uid`, of that pod only."""
    options: dict[str, Any] = {}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if preconditions := _preconditions(uid, None):
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    return {**body, "deleteOptions": options} if options else body


def _preconditions(uid: str | None, resource_version: str | None) -> dict[str, str]:
    return {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None}
