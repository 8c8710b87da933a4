"""Rules of single built-in types: pods, workloads, services, budgets, webhooks, roles, custom resource definitions."""

from collections.abc import Callable, Iterator
from typing import Any

from kubetide.api.codec import convert
from kubetide.api.quantity import parse_quantity
from kubetide.api.selectors import LabelSelector, selector_from
from kubetide.embedded import crds
from kubetide.embedded.causes import LABEL, LABEL_TEXT, bad_value, label_problems, required, unsupported
from kubetide.embedded.objects import ResourceKey
from kubetide.embedded.status import Cause, Raw, bad_request
from kubetide.errors import InvalidInput, QuantityError

Rule = Callable[[Raw], Iterator[Cause]]


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
            elif len(name) > 63 or LABEL.fullmatch(name) is None:
                yield bad_value(f"{here}.name", name, LABEL_TEXT)
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

RULES: dict[ResourceKey, Rule] = {
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
