"""What the bodies of writes say, for the checker: the fields that a patch sets, counts, statuses, preconditions."""

from collections.abc import Iterator
from typing import Any

from drills.audit import Event


def touched(body: Any) -> list[tuple[str, Any]]:
    """Return the fields that a JSON patch or a merge patch sets, with their values; tests change nothing."""
    if isinstance(body, list):
        plain = [(op["path"].strip("/").replace("/", ".").replace("~1", "/"), op) for op in body]
        return [(path, op.get("value")) for path, op in plain if op.get("op") != "test"]
    return list(_leaves(body, "")) if isinstance(body, dict) else []


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def status_of(event: Event) -> dict[str, Any] | None:
    """Return the whole status that a write sets, None if it sets none or only a part."""
    if isinstance(event.body, list):
        return next((op["value"] for op in event.body if op.get("path") == "/status" and op.get("op") == "add"), None)
    status = event.body.get("status") if isinstance(event.body, dict) else None
    return status if isinstance(status, dict) else None


def targets(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the targets of a VPA status by container."""
    listed = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    return {entry["containerName"]: entry.get("target") or {} for entry in listed}


def replicas_of(event: Event) -> int | None:
    """Return the count that a write of a scale or of a workload sets."""
    if event.subresource not in ("", "scale") or not isinstance(event.body, dict):
        return None
    spec = event.body.get("spec")
    count = spec.get("replicas") if isinstance(spec, dict) else None
    return int(count) if isinstance(count, int) else None


def uid_of(event: Event) -> str:
    """Return the UID that an act names, empty if it goes by the name alone."""
    if isinstance(event.body, list):
        return next((str(op.get("value")) for op in event.body if op.get("path") == "/metadata/uid"), "")
    body = event.body if isinstance(event.body, dict) else {}
    options = body.get("deleteOptions") or body
    return str((options.get("preconditions") or {}).get("uid") or "")
