"""What arrives in the body of a request: objects as JSON, YAML or protobuf, and patches."""

import re
from itertools import accumulate
from typing import Any

import msgspec
import yaml

from kubetide.api.values.patch import JsonPatch, MergePatch, Patch, StrategicMergePatch
from kubetide.embedded.apiserver.protobuf.reader import MEDIA_TYPE as PROTOBUF
from kubetide.embedded.apiserver.protobuf.reader import decode_protobuf
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.listing import parse_version
from kubetide.embedded.apiserver.rest.requests import Answer, Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, bad_request, conflict, unsupported_media
from kubetide.errors import InvalidInput, PatchTooLarge

APPLY_YAML = "application/apply-patch+yaml"
PATCH_TYPES = (
    JsonPatch.content_type,
    MergePatch.content_type,
    StrategicMergePatch.content_type,
    APPLY_YAML,
)
DEEPEST = 200
"""How many levels an object may have. Deep custom resource definitions have fewer than a hundred."""
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_BRACKETS = bytes(each for each in range(256) if each not in _STEPS)
_BODY_TYPES = ("application/json", "application/yaml", PROTOBUF)


def is_dry_run(request: Request) -> bool:
    """Whether nothing is to be stored."""
    value = request.query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad_request(f'invalid dryRun: Unsupported value: "{value}": supported values: "All"')
    return value == "All"


def decode_body(request: Request, *, media: str | None = None, empty: bool = False) -> Raw:
    """Return the object in the body of a request, or refuse a body that is none."""
    media = media or request.content_type.partition(";")[0].strip() or "application/json"
    if not request.body:
        if empty:
            return {}
        raise bad_request("the request has no body")
    if media == "application/json" or (media == APPLY_YAML and request.body.lstrip()[:1] == b"{"):
        value = _json(request.body)
    elif media in ("application/yaml", APPLY_YAML):
        try:
            # A few aliases of aliases unfold to more than any memory holds.
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(request.body, Loader=yaml.CSafeLoader)):
                raise bad_request("YAML aliases are not accepted")
            value = yaml.load(request.body, Loader=_YamlLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise bad_request(f"error parsing YAML: {error}") from error
    elif media == PROTOBUF:
        value = decode_protobuf(request.body)
    else:
        raise unsupported_media(media, _BODY_TYPES)
    if not isinstance(value, dict):
        raise bad_request("the body is not a JSON object")
    if media in ("application/yaml", APPLY_YAML, PROTOBUF):
        _check_depth(_as_json(value))
    return value


def decode_patch(request: Request, media: str) -> Patch:
    """Return the patch in the body of a request."""
    value = _json(request.body or b"")
    if media == JsonPatch.content_type:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise bad_request("a JSON patch is a list of operations")
        return JsonPatch(tuple(value))
    if not isinstance(value, dict):
        raise bad_request("a merge patch is an object")
    return MergePatch(value) if media == MergePatch.content_type else StrategicMergePatch(value)


def names_version(patch: Patch) -> bool:
    """Whether a patch says from which version of the object it starts."""
    if isinstance(patch, JsonPatch):
        return any(operation.get("path") == "/metadata/resourceVersion" for operation in patch.operations)
    body = patch.body if isinstance(patch, MergePatch | StrategicMergePatch) else {}
    metadata = body.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))


def _json(body: bytes) -> Any:
    _check_depth(body)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    return value


def _as_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def _check_depth(body: bytes) -> None:
    """Refuse what is nested so deeply that walking through it could end in the middle of a write."""
    if body.count(b"{") + body.count(b"[") <= DEEPEST:
        return
    brackets = _STRINGS.sub(b"", body).translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > DEEPEST:
        raise bad_request(f"the object provided is nested deeper than {DEEPEST} levels")


class _YamlLoader(yaml.CSafeLoader):
    """Reads YAML as JSON would be: times stay texts."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def check_type(resource: ApiResource, body: Raw) -> None:
    """Refuse an object of another type than the path says; fill the type in where it is left out."""
    if not body.get("apiVersion"):
        body["apiVersion"] = resource.api_version
    if not body.get("kind"):
        body["kind"] = resource.kind
    if body["apiVersion"] != resource.api_version or body["kind"] != resource.kind:
        raise bad_request(
            f"the API version and kind in the data ({body['apiVersion']}, {body['kind']}) "
            f"do not match the expected ones ({resource.api_version}, {resource.kind})"
        )


def with_warnings(answer: Answer, warnings: list[str]) -> Answer:
    """Add warnings for the client to show."""
    if not warnings:
        return answer
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings]
    told = ", ".join(f'299 - "{text}"' for text in quoted)
    return Answer(answer.status, answer.body, answer.content_type, {**answer.headers, "warning": told})


def patched(patch: Patch, current: Raw) -> Raw:
    """Return an object after a patch."""
    try:
        changed = patch.apply(current)
    except PatchTooLarge as error:
        raise StatusError(413, "RequestEntityTooLarge", str(error)) from error
    except InvalidInput as error:
        raise StatusError(
            422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
        ) from error
    if not isinstance(changed, dict):
        raise bad_request("the patch does not leave an object")
    return changed


def check_preconditions(resource: ApiResource, target: RequestTarget, metadata: Raw, old: Raw) -> None:
    """Raise a conflict if a write is about another version or another object of that name."""
    was = old["metadata"]
    version = metadata.get("resourceVersion")
    if version and version != was["resourceVersion"]:
        parse_version(str(version))
        raise conflict(resource.group, resource.plural, target.name)
    uid = metadata.get("uid")
    if uid and uid != was["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {was['uid']}"
        raise conflict(resource.group, resource.plural, target.name, why)


def settle_name(target: RequestTarget, metadata: Raw) -> None:
    """Give an object the name of its URL; it may have no other."""
    if metadata.setdefault("name", target.name) != target.name:
        raise bad_request("the name of the object does not match the name on the URL")


def settle_namespace(resource: ApiResource, target: RequestTarget, metadata: Raw) -> None:
    """Give an object the namespace of its URL; it may have no other."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.setdefault("namespace", target.namespace) in ("", None):
        metadata["namespace"] = target.namespace
    if metadata["namespace"] != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
