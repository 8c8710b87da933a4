"""What is refused with 422: names, labels, and the rules of the built-in types that users run into.

Not every rule of Kubernetes is here: those that protect controllers and tests from objects that could not exist on a
real cluster are. Custom resources are checked against their schema, autoscalers by `api.hpa_validation`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from kubetide.api import hpa_validation
from kubetide.api.codec import convert
from kubetide.api.quantity import parse_quantity
from kubetide.api.selectors import LabelSelector, label_key_problem, label_value_problem, selector_from
from kubetide.embedded import crds
from kubetide.embedded.objects import ResourceKey
from kubetide.embedded.resources import ApiResource
from kubetide.embedded.status import Cause, Raw, bad_request, invalid
from kubetide.errors import InvalidInput, QuantityError

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_MAX_ANNOTATIONS = 256 * 1024
_PATH_NAMED = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_LABEL_NAMED = ("namespaces", "services")

Rule = Callable[[Raw], Iterator[Cause]]


def required(path: str, why: str = "") -> Cause:
    """A field that must be there is not."""
    return Cause(path, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def bad_value(path: str, value: Any, rule: str) -> Cause:
    """A field has a value it may not have."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {rule}")


def unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    """A field has none of the values it may have."""
    listing = ", ".join(f'"{item}"' for item in allowed)
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listing}')


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


def check_unknown_fields(resource: ApiResource, obj: Raw, mode: str) -> list[str]:
    """Return warnings about fields that will be dropped, or refuse them if the client asked for that."""
    if resource.crd is None or mode not in ("Strict", "Warn"):
        return []
    unknown = [f'unknown field "{path}"' for path in resource.crd.unknown_fields(obj)]
    if unknown and mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown


def check_new(resource: ApiResource, obj: Raw, gates: frozenset[str] = frozenset()) -> None:
    """Refuse a new object that breaks a rule."""
    _refuse(resource, obj, [*_meta(resource, obj), *_specific(resource, obj, None, gates)])


def check_change(
    resource: ApiResource, subresource: str, new: Raw, old: Raw, gates: frozenset[str] = frozenset()
) -> None:
    """Refuse a change that breaks a rule, or touches what may not change."""
    _check_map(new["metadata"].get("labels"), "metadata.labels")
    _check_map(new["metadata"].get("annotations"), "metadata.annotations")
    causes = [] if _same_labels(new["metadata"], old["metadata"]) else list(_meta(resource, new))
    if subresource == "status" and resource.crd is None:
        if resource.plural == "horizontalpodautoscalers":
            causes += _hpa_causes(hpa_validation.validate_status(new))
    else:
        causes += _specific(resource, new, old, gates)
        if not subresource:
            causes += _immutable(resource, new, old)
    _refuse(resource, new, causes)


def _same_labels(metadata: Raw, was: Raw) -> bool:
    """Whether everything in the metadata that has rules is as it was."""
    return all(metadata.get(field) == was.get(field) for field in ("labels", "annotations", "ownerReferences"))


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
        if len(name) > 63 or _LABEL.fullmatch(name) is None:
            yield bad_value("metadata.name", name, _LABEL_TEXT)
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
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(owner, dict) or not owner.get(field):
                yield required(f"metadata.ownerReferences[{index}].{field}")


def label_problems(labels: Raw | None, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a map of labels."""
    for key, value in (labels or {}).items():
        problem = label_key_problem(key) or label_value_problem(value or "")
        if problem:
            yield bad_value(path, key if label_key_problem(key) else value, problem)


def _specific(resource: ApiResource, obj: Raw, old: Raw | None, gates: frozenset[str]) -> list[Cause]:
    if resource.crd is not None:
        return resource.crd.problems(obj, old)
    if resource.plural == "horizontalpodautoscalers":
        return _hpa_problems(obj, old, scale_to_zero="HPAScaleToZero" in gates)
    rule = _RULES.get(resource.storage)
    try:
        return list(rule(obj)) if rule is not None else []
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        # A field of the wrong JSON type: the object cannot even be read as its type.
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        ) from error


def _hpa_problems(obj: Raw, old: Raw | None, *, scale_to_zero: bool) -> list[Cause]:
    try:
        return _hpa_causes(hpa_validation.validate(obj, old=old, scale_to_zero=scale_to_zero))
    except (AttributeError, TypeError, QuantityError) as error:
        raise bad_request(f"HorizontalPodAutoscaler cannot be handled: {error}") from error


def _hpa_causes(problems: list[hpa_validation.Problem]) -> list[Cause]:
    return [Cause(problem.field, problem.type, problem.detail) for problem in problems]


def _immutable(resource: ApiResource, new: Raw, old: Raw) -> Iterator[Cause]:
    spec, was = new.get("spec") or {}, old.get("spec") or {}
    if resource.group == "apps" and spec.get("selector") != was.get("selector"):
        yield bad_value("spec.selector", str(spec.get("selector")), "field is immutable")
    if resource.storage == ("", "pods"):
        yield from _pod_immutable(spec, was)
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


# -- rules of single types


def _pod(obj: Raw) -> Iterator[Cause]:
    yield from pod_spec_problems(obj.get("spec") or {}, "spec")


def pod_spec_problems(
    spec: Raw, path: str, *, restart: tuple[str, ...] = ("Always", "OnFailure", "Never")
) -> Iterator[Cause]:
    """Yield what is wrong with a pod spec."""
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield required(f"{here}.name")
            elif len(name) > 63 or _LABEL.fullmatch(name) is None:
                yield bad_value(f"{here}.name", name, _LABEL_TEXT)
            elif name in seen:
                yield Cause(f"{here}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            seen.add(name)
            if not container.get("image"):
                yield required(f"{here}.image")
            yield from resource_problems(container.get("resources") or {}, f"{here}.resources")
    policy = spec.get("restartPolicy")
    if policy not in restart:
        yield unsupported(f"{path}.restartPolicy", policy, restart)


def resource_problems(resources: Raw, path: str) -> Iterator[Cause]:
    """Yield quantities that cannot be read, negative ones, and requests above their limits."""
    parsed: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for kind, amounts in parsed.items():
        for name, text in (resources.get(kind) or {}).items():
            here = f"{path}.{kind}[{name}]" if "/" in name or "." in name else f"{path}.{kind}.{name}"
            try:
                amount = parse_quantity(text)
            except QuantityError:
                raise bad_request(
                    f"quantities must match the regular expression "
                    f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': {path}.{kind}.{name}: {text!r}"
                ) from None
            if amount.sign < 0:
                yield bad_value(here, str(text), "must be greater than or equal to 0")
            amounts[name] = amount
    for name, asked in parsed["requests"].items():
        limit = parsed["limits"].get(name)
        if limit is not None and asked > limit:
            text = resources["requests"][name]
            yield bad_value(f"{path}.requests", str(text), f"must be less than or equal to {name} limit of {limit}")


def _workload(obj: Raw) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    yield from _replicas(spec)
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    raw = spec.get("selector")
    if obj["kind"] == "ReplicationController":
        if not raw:
            yield required("spec.selector")
        elif any(labels.get(key) != value for key, value in raw.items()):
            yield bad_value("spec.template.metadata.labels", str(labels), "`selector` does not match template `labels`")
    elif not raw:
        yield required("spec.selector")
    else:
        try:
            matches = selector_from(convert(raw, LabelSelector)).matches(labels)
        except InvalidInput as error:
            yield bad_value("spec.selector", str(raw), str(error))
        else:
            if not matches:
                yield bad_value(
                    "spec.template.metadata.labels", str(labels), "`selector` does not match template `labels`"
                )
    yield from label_problems(labels, "spec.template.metadata.labels")
    yield from pod_spec_problems(template.get("spec") or {}, "spec.template.spec", restart=("Always",))


def _replicas(spec: Raw) -> Iterator[Cause]:
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas: cannot unmarshal into an int32")
    if replicas < 0:
        yield bad_value("spec.replicas", replicas, "must be greater than or equal to 0")


def _job(obj: Raw) -> Iterator[Cause]:
    template = (obj.get("spec") or {}).get("template") or {}
    yield from pod_spec_problems(template.get("spec") or {}, "spec.template.spec", restart=("OnFailure", "Never"))


def _cron_job(obj: Raw) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    schedule = spec.get("schedule")
    if not schedule:
        yield required("spec.schedule")
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        yield bad_value("spec.schedule", schedule, "expected exactly 5 fields")
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    pod = dict((job.get("template") or {}).get("spec") or {})
    yield from pod_spec_problems(pod, "spec.jobTemplate.spec.template.spec", restart=("OnFailure", "Never"))


def _pdb(obj: Raw) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield bad_value("spec", str(spec), "minAvailable and maxUnavailable cannot be both set")


def _service(obj: Raw) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            yield bad_value(f"spec.ports[{index}].port", number, "must be between 1 and 65535, inclusive")


def _crd(obj: Raw) -> Iterator[Cause]:
    yield from crds.problems(obj)


def _webhooks(obj: Raw) -> Iterator[Cause]:
    for index, hook in enumerate(obj.get("webhooks") or ()):
        here = f"webhooks[{index}]"
        if not hook.get("name"):
            yield required(f"{here}.name")
        if not hook.get("sideEffects"):
            yield required(f"{here}.sideEffects", "must specify one of None, NoneOnDryRun")
        if not hook.get("admissionReviewVersions"):
            yield required(f"{here}.admissionReviewVersions", "must specify one of v1, v1beta1")
        config = hook.get("clientConfig") or {}
        if ("url" in config) == ("service" in config):
            yield required(f"{here}.clientConfig", "exactly one of url or service is required")
        if hook.get("failurePolicy") not in ("Fail", "Ignore"):
            yield unsupported(f"{here}.failurePolicy", hook.get("failurePolicy"), ("Fail", "Ignore"))
        seconds = hook.get("timeoutSeconds")
        if not isinstance(seconds, int) or not 1 <= seconds <= 30:
            yield bad_value(f"{here}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")


def _role_binding(obj: Raw) -> Iterator[Cause]:
    reference = obj.get("roleRef") or {}
    for field in ("kind", "name"):
        if not reference.get(field):
            yield required(f"roleRef.{field}")


_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"

_RULES: dict[ResourceKey, Rule] = {
    ResourceKey("", "pods"): _pod,
    ResourceKey("", "services"): _service,
    ResourceKey("", "replicationcontrollers"): _workload,
    ResourceKey("apps", "deployments"): _workload,
    ResourceKey("apps", "replicasets"): _workload,
    ResourceKey("apps", "statefulsets"): _workload,
    ResourceKey("apps", "daemonsets"): _workload,
    ResourceKey("batch", "jobs"): _job,
    ResourceKey("batch", "cronjobs"): _cron_job,
    ResourceKey("policy", "poddisruptionbudgets"): _pdb,
    ResourceKey("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ResourceKey(_HOOKS, "mutatingwebhookconfigurations"): _webhooks,
    ResourceKey(_HOOKS, "validatingwebhookconfigurations"): _webhooks,
    ResourceKey(_RBAC, "rolebindings"): _role_binding,
    ResourceKey(_RBAC, "clusterrolebindings"): _role_binding,
}
