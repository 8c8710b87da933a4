"""Rules of single built-in types: workloads, services, budgets, webhooks, roles, custom resource definitions."""

from collections.abc import Callable, Iterator

from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.embedded.apiserver.crds import crds
from kubetide.embedded.apiserver.rest.status import (
    Cause,
    Raw,
    bad_request,
    bad_value,
    label_problems,
    name_problems,
    port_problems,
    required,
    selector_problems,
    unsupported,
)
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.apiserver.validation.pod_rules import pod_spec_problems
from kubetide.errors import InvalidInput

Rule = Callable[[Raw], Iterator[Cause]]


def _pod(obj: Raw) -> Iterator[Cause]:
    yield from pod_spec_problems(obj.get("spec") or {}, "spec")


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
            yield bad_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    elif not raw:
        yield required("spec.selector")
    elif broken := list(selector_problems(raw)):
        yield from broken
        yield bad_value("spec.selector", raw, "invalid label selector")
    else:
        try:
            matches = selector_from(convert(raw, LabelSelector)).matches(labels)
        except InvalidInput as error:
            yield bad_value("spec.selector", raw, str(error))
        else:
            if not matches:
                yield bad_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from label_problems(labels, "spec.template.metadata.labels")
    yield from pod_spec_problems(template.get("spec") or {}, "spec.template.spec", restart=("Always",))


def _replicas(spec: Raw) -> Iterator[Cause]:
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas: cannot unmarshal into an int32")
    if replicas < 0:
        yield bad_value("spec.replicas", replicas, "must be greater than or equal to 0")


def _stateful_set(obj: Raw) -> Iterator[Cause]:
    yield from _workload(obj)
    for index, claim in enumerate((obj.get("spec") or {}).get("volumeClaimTemplates") or ()):
        here = f"spec.volumeClaimTemplates[{index}].spec"
        spec = claim.get("spec") or {}
        if not spec.get("accessModes"):
            yield required(f"{here}.accessModes", "at least 1 access mode is required")
        if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
            yield required(f"{here}.resources[storage]")


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
        yield bad_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    yield from selector_problems(spec.get("selector"))


def _service(obj: Raw) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    for index, port in enumerate(spec.get("ports") or ()):
        yield from port_problems(port.get("port") or 0, f"spec.ports[{index}].port")
        aim = port.get("targetPort") or port.get("port") or 0
        if isinstance(aim, int):
            yield from port_problems(aim, f"spec.ports[{index}].targetPort")


def _endpoints(obj: Raw) -> Iterator[Cause]:
    for index, subset in enumerate(obj.get("subsets") or ()):
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(f"subsets[{index}]", "must specify `addresses` or `notReadyAddresses`")


def _limit_range(obj: Raw) -> Iterator[Cause]:
    for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
        yield from name_problems(limit.get("type") or "", f"spec.limits[{index}].type")


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


def _role(obj: Raw) -> Iterator[Cause]:
    for index, rule in enumerate(obj.get("rules") or ()):
        for field in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"):
            values = rule.get(field) or []
            if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
                yield bad_value(f"rules[{index}].{field}", values, "must be a list of strings")
        if not rule.get("verbs"):
            yield required(f"rules[{index}].verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            yield required(f"rules[{index}].apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"rules[{index}].resources", "resource rules must supply at least one resource")


def _role_binding(obj: Raw) -> Iterator[Cause]:
    reference = obj.get("roleRef") or {}
    for field in ("kind", "name"):
        if not reference.get(field):
            yield required(f"roleRef.{field}")
    for index, subject in enumerate(obj.get("subjects") or ()):
        if not subject.get("name"):
            yield required(f"subjects[{index}].name")
        if subject.get("kind") not in _SUBJECTS:
            yield unsupported(f"subjects[{index}].kind", subject.get("kind") or "", _SUBJECTS)


_SUBJECTS = ("ServiceAccount", "User", "Group")
_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"

RULES: dict[ResourceKey, Rule] = {
    ResourceKey("", "pods"): _pod,
    ResourceKey("", "services"): _service,
    ResourceKey("", "endpoints"): _endpoints,
    ResourceKey("", "limitranges"): _limit_range,
    ResourceKey("", "replicationcontrollers"): _workload,
    ResourceKey("apps", "deployments"): _workload,
    ResourceKey("apps", "replicasets"): _workload,
    ResourceKey("apps", "statefulsets"): _stateful_set,
    ResourceKey("apps", "daemonsets"): _workload,
    ResourceKey("batch", "jobs"): _job,
    ResourceKey("batch", "cronjobs"): _cron_job,
    ResourceKey("policy", "poddisruptionbudgets"): _pdb,
    ResourceKey("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ResourceKey(_HOOKS, "mutatingwebhookconfigurations"): _webhooks,
    ResourceKey(_HOOKS, "validatingwebhookconfigurations"): _webhooks,
    ResourceKey(_RBAC, "roles"): _role,
    ResourceKey(_RBAC, "clusterroles"): _role,
    ResourceKey(_RBAC, "rolebindings"): _role_binding,
    ResourceKey(_RBAC, "clusterrolebindings"): _role_binding,
}
