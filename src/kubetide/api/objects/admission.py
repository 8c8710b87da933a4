"""AdmissionReview: what an API server asks a webhook, and the answer; and when a registration is up to date."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.codec import convert

REVIEW_VERSION = "admission.k8s.io/v1"


class GroupVersionKind(ApiObject, frozen=True, kw_only=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(ApiObject, frozen=True, kw_only=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(ApiObject, frozen=True, kw_only=True, gc=False):
    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class AdmissionReview(ApiObject, frozen=True, kw_only=True, gc=False):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


def local_review(raw: Mapping[str, Any]) -> AdmissionReview:
    """Read a review that comes as dicts, from an API server in the same process."""
    request = raw.get("request") or {}
    plain = {key: value for key, value in request.items() if key not in ("object", "oldObject")}
    parsed = convert(plain, AdmissionRequest, what="AdmissionReview")
    objects = {
        "object": msgspec.Raw(msgspec.json.encode(request.get("object"))),
        "old_object": msgspec.Raw(msgspec.json.encode(request.get("oldObject"))),
    }
    return AdmissionReview(request=msgspec.structs.replace(parsed, **objects))


def review_response(
    uid: str,
    *,
    allowed: bool = True,
    message: str = "",
    code: int = 403,
    patch: Sequence[dict[str, Any]] | None = None,
    warnings: Sequence[str] = (),
    api_version: str = REVIEW_VERSION,
) -> dict[str, Any]:
    """Return the AdmissionReview that answers the request `uid`. `patch` holds JSON patch operations."""
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if not allowed:
        response["status"] = {"code": code, "message": message}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return {"apiVersion": api_version, "kind": "AdmissionReview", "response": response}


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operations that turn one object into the other, member by member of its parts."""
    operations: list[dict[str, Any]] = []
    for part in ("metadata", "spec", "status"):
        old, new = before.get(part) or {}, after.get(part) or {}
        if not old and new:
            operations.append({"op": "add", "path": f"/{part}", "value": new})
            continue
        for name in sorted({**old, **new}):
            if name not in new:
                operations.append({"op": "remove", "path": f"/{part}/{name}"})
            elif old.get(name) != new[name]:
                operations.append({"op": "add", "path": f"/{part}/{name}", "value": new[name]})
    return operations


def same_webhooks(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a stored configuration already says what is wanted; what others added does not matter."""
    return _includes(current.get("webhooks"), wanted["webhooks"]) and all(
        _noted(wanted, part).items() <= _noted(current, part).items() for part in ("labels", "annotations")
    )


class RegistrationCheck:
    """Compares a configuration with what is wanted only when one of the two has changed."""

    def __init__(self) -> None:
        self._known: tuple[object, Mapping[str, Any]] | None = None

    def same(self, current: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Return whether a stored configuration already says what is wanted."""
        meta = current.get("metadata") or {}
        version = (meta.get("uid"), meta.get("resourceVersion"))
        if all(version) and self._known == (version, wanted):
            return True
        same = same_webhooks(current, wanted)
        self._known = (version, wanted) if same else None
        return same


def replacement(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration to store in place of `current`, with the labels and annotations of others."""
    meta: dict[str, Any] = {**wanted["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
    for part in ("labels", "annotations"):
        if kept := {**_noted(current, part), **_noted(wanted, part)}:
            meta[part] = kept
    return {**wanted, "metadata": meta}


def _noted(configuration: Mapping[str, Any], part: str) -> Mapping[str, str]:
    return (configuration.get("metadata") or {}).get(part) or {}


def _includes(current: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if not isinstance(current, Mapping):
            return False
        # A condition that is no longer wanted must go.
        gone = "matchConditions" in current and "matchConditions" not in wanted and "rules" in wanted
        return not gone and all(_includes(current.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(current, list) or len(current) != len(wanted):
            return False
        return all(_includes(one, other) for one, other in zip(current, wanted, strict=True))
    return bool(current == wanted)
