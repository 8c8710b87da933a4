"""AdmissionReview: what an API server asks a webhook, and the answer."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from kubetide.api.objects.meta import ApiObject

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
