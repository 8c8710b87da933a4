"""What is refused with 422: names, labels, and the rules of the built-in types that users run into.

Not every rule of Kubernetes is here: those that protect controllers and tests from objects that could not exist on a
real cluster are. Custom resources are checked against their schema, autoscalers by `api.hpa_validation`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kubetide.api.objects import hpa_status_validation, hpa_validation
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.values.selectors import label_key_problem
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import (
    LABEL,
    LABEL_TEXT,
    Cause,
    Raw,
    bad_request,
    bad_value,
    found_cause,
    invalid,
    label_problems,
    name_problems,
    required,
)
from kubetide.embedded.apiserver.validation.builtin_rules import RULES
from kubetide.embedded.apiserver.validation.pod_rules import pod_status_problems
from kubetide.errors import QuantityError

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_MAX_ANNOTATIONS = 256 * 1024
_PATH_NAMED = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_LABEL_NAMED = ("namespaces", "services")
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def check_text(value: Any, path: str) -> None:
    """Refuse anything but text."""
    if not isinstance(value, str):
        raise bad_request(f"{path}: must be a string")


def check_name(resource: ApiResource, obj: Raw) -> None:
    """Refuse an object without a usable name, and metadata that is not what metadata is."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if name in (None, ""):
        cause = required("metadata.name", "name or generateName is required")
        raise invalid(resource.group, resource.kind, "", [cause])
    check_text(name, "metadata.name")
    for field in ("labels", "annotations"):
        _check_map(metadata.get(field), f"metadata.{field}")
    for field in ("finalizers", "ownerReferences"):
        if metadata.get(field) is not None and not isinstance(metadata[field], list):
            raise bad_request(f"metadata.{field}: must be a list")


def _check_map(value: Any, path: str) -> None:
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(item, str) or item is None for item in value.values()):
        raise bad_request(f"{path}: must be a map of strings")


def check_new(resource: ApiResource, obj: Raw, gates: frozenset[str] = frozenset()) -> None:
    """Refuse a new object that breaks a rule."""
    _refuse(resource, obj, [*_meta(resource, obj), *_specific(resource, obj, None, gates)])


def check_change(
    resource: ApiResource, subresource: str, new: Raw, old: Raw, gates: frozenset[str] = frozenset()
) -> None:
    """Refuse a change that breaks a rule, or touches what may not change."""
    causes: list[Cause] = []
    if not _same_labels(new["metadata"], old["metadata"]):
        _check_map(new["metadata"].get("labels"), "metadata.labels")
        _check_map(new["metadata"].get("annotations"), "metadata.annotations")
        causes += _meta(resource, new)
    if subresource == "status" and resource.crd is None:
        if resource.plural == "horizontalpodautoscalers":
            causes += _hpa_causes(new, hpa_status_validation.validate_status(new, HpaCompat(gates=gates)))
        elif resource.storage == ("", "pods"):
            causes += pod_status_problems(new.get("status") or {})
    else:
        causes += _specific(resource, new, old, gates)
        if not subresource:
            causes += _immutable(resource, new, old)
    _refuse(resource, new, causes)


def _same_labels(metadata: Raw, was: Raw) -> bool:
    """Whether everything in the metadata that has rules is as it was."""
    return (
        metadata.get("labels") == was.get("labels")
        and metadata.get("annotations") == was.get("annotations")
        and metadata.get("ownerReferences") == was.get("ownerReferences")
        and metadata.get("finalizers") == was.get("finalizers")
    )


def _refuse(resource: ApiResource, obj: Raw, causes: list[Cause]) -> None:
    if causes:
        raise invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), causes)


def _meta(resource: ApiResource, obj: Raw) -> Iterator[Cause]:
    metadata = obj["metadata"]
    name = metadata["name"]
    if resource.plural in _PATH_NAMED:
        if name in (".", "..") or "/" in name or "%" in name:
            yield bad_value("metadata.name", name, "may not be '.', '..', or contain '/' or '%'")
    elif resource.plural in _LABEL_NAMED and not resource.group:
        if len(name) > 63 or LABEL.fullmatch(name) is None:
            yield bad_value("metadata.name", name, LABEL_TEXT)
    elif len(name) > 253 or _SUBDOMAIN.fullmatch(name) is None:
        yield bad_value("metadata.name", name, _SUBDOMAIN_TEXT)
    yield from label_problems(metadata.get("labels"), "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        problem = label_key_problem(key.lower())
        if problem:
            yield bad_value("metadata.annotations", key, problem)
    if sum(len(key) + len(value or "") for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        yield Cause(
            "metadata.annotations", "FieldValueTooLong", f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
        )
    for owner in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(owner, dict) or not owner.get(field):
                rule = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield bad_value(f"metadata.ownerReferences.{field}", "", rule)
    yield from _finalizers(resource, metadata.get("finalizers") or ())


def _finalizers(resource: ApiResource, names: Sequence[str]) -> Iterator[Cause]:
    for name in names:
        check_text(name, "metadata.finalizers")
        yield from name_problems(name, "metadata.finalizers")
    if resource.crd is None:
        for index, name in enumerate(names):
            if "/" not in name and name not in _FINALIZERS:
                rule = "name is neither a standard finalizer name nor is it fully qualified"
                yield bad_value(f"metadata.finalizers[{index}]", name, rule)


def _specific(resource: ApiResource, obj: Raw, old: Raw | None, gates: frozenset[str]) -> list[Cause]:
    if resource.crd is not None:
        return resource.crd.problems(obj, old)
    if resource.plural == "horizontalpodautoscalers":
        return _hpa_problems(obj, old, HpaCompat(gates=gates))
    rule = RULES.get(resource.storage)
    try:
        return list(rule(obj)) if rule is not None else []
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        # A field of the wrong JSON type: the object cannot even be read as its type.
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        ) from error


def _hpa_problems(obj: Raw, old: Raw | None, compat: HpaCompat) -> list[Cause]:
    try:
        return _hpa_causes(obj, hpa_validation.validate(obj, old=old, compat=compat))
    except (AttributeError, TypeError, QuantityError) as error:
        raise bad_request(f"HorizontalPodAutoscaler cannot be handled: {error}") from error


def _hpa_causes(obj: Raw, problems: list[hpa_validation.Problem]) -> list[Cause]:
    return [found_cause(obj, problem.field, problem.type, problem.detail) for problem in problems]


def _immutable(resource: ApiResource, new: Raw, old: Raw) -> Iterator[Cause]:
    spec, was = new.get("spec") or {}, old.get("spec") or {}
    if resource.group == "apps" and spec.get("selector") != was.get("selector"):
        yield bad_value("spec.selector", spec.get("selector"), "field is immutable")
    if resource.storage == ("", "pods"):
        yield from _pod_immutable(spec, was)
    if resource.plural in ("rolebindings", "clusterrolebindings") and new.get("roleRef") != old.get("roleRef"):
        yield bad_value("roleRef", new.get("roleRef"), "cannot change roleRef")
    if resource.plural == "jobs":
        for field in ("selector", "template", "completionMode"):
            if spec.get(field) != was.get(field) and not was.get("suspend"):
                yield bad_value(f"spec.{field}", "", "field is immutable")
    if old["metadata"].get("deletionTimestamp"):
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            text = "Forbidden: no new finalizers can be added if the object is being deleted"
            yield Cause("metadata.finalizers", "FieldValueForbidden", text)
    if resource.plural in ("secrets", "configmaps") and old.get("immutable"):
        for field in ("data", "binaryData", "stringData"):
            if new.get(field) != old.get(field):
                yield Cause(field, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")


def _pod_immutable(spec: Raw, was: Raw) -> Iterator[Cause]:
    """A pod's spec is fixed but for images, deadlines, more tolerations, and what `resize` and `binding` do."""
    if _fixed_part(spec) != _fixed_part(was):
        yield Cause(
            "spec",
            "FieldValueForbidden",
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)",
        )


def _fixed_part(spec: Raw) -> Raw:
    free = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if isinstance(fixed.get(field), list):
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed
