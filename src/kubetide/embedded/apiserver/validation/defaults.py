"""Defaults of built-in objects, as far as controllers, schedulers and kubectl rely on them.

Each function fills what is absent in a raw object, in place. They run on every write, so an object read back is
complete in the fields named here; fields not named stay as the user wrote them.
"""

import base64
from collections.abc import Callable
from typing import Any

from kubetide.api.objects import hpa_versions
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.errors import QuantityError


def set_default(obj: Raw, field: str, value: Any) -> Any:
    """Set `field` where it is absent or null, and return what is there then."""
    present = obj.get(field)
    if present is None:
        obj[field] = present = value
    return present


def default_pod_spec(spec: Raw) -> None:
    """Fill a pod spec, of a pod or of a template."""
    set_default(spec, "restartPolicy", "Always")
    set_default(spec, "terminationGracePeriodSeconds", 30)
    set_default(spec, "dnsPolicy", "ClusterFirst")
    set_default(spec, "securityContext", {})
    set_default(spec, "schedulerName", "default-scheduler")
    for field in ("initContainers", "containers"):
        for container in _dicts(spec.get(field)):
            _container(container)
    for volume in _dicts(spec.get("volumes")):
        _volume(volume)


def _container(container: Raw) -> None:
    image = container.get("image")
    if isinstance(image, str):
        tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
        fixed = "@" in image or tag not in ("", "latest")
        set_default(container, "imagePullPolicy", "IfNotPresent" if fixed else "Always")
    set_default(container, "terminationMessagePath", "/dev/termination-log")
    set_default(container, "terminationMessagePolicy", "File")
    resources = set_default(container, "resources", {})
    if isinstance(resources, dict):
        _canonical(resources)
    for port in _dicts(container.get("ports")):
        set_default(port, "protocol", "TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            _probe(container[probe])


def _canonical(resources: Raw) -> None:
    """Write amounts the way the API shows them: 0.5 is 500m, 1024Mi is 1Gi. What is no amount is left to validation."""
    for kind in ("limits", "requests"):
        amounts = resources.get(kind)
        if not isinstance(amounts, dict):
            continue
        for name, amount in amounts.items():
            try:
                text = str(parse_quantity(amount))
            except (QuantityError, TypeError):
                continue
            if text != amount:
                amounts[name] = text


def _requests_from_limits(resources: Raw) -> None:
    """Request the limit of what has no request: in a pod, while a template stays as it was written."""
    limits = resources.get("limits")
    if isinstance(limits, dict) and limits:
        requests = resources.get("requests") or {}
        missing = {name: value for name, value in limits.items() if name not in requests}
        if missing:
            resources["requests"] = {**requests, **missing}


def _probe(probe: Raw) -> None:
    set_default(probe, "timeoutSeconds", 1)
    set_default(probe, "periodSeconds", 10)
    set_default(probe, "successThreshold", 1)
    set_default(probe, "failureThreshold", 3)
    if isinstance(probe.get("httpGet"), dict):
        set_default(probe["httpGet"], "path", "/")
        set_default(probe["httpGet"], "scheme", "HTTP")


def _volume(volume: Raw) -> None:
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            set_default(volume[source], "defaultMode", 420)


def _dicts(items: Any) -> list[Raw]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _spec(obj: Raw) -> Raw:
    spec = set_default(obj, "spec", {})
    return spec if isinstance(spec, dict) else {}


def _pod(obj: Raw) -> None:
    spec = _spec(obj)
    default_pod_spec(spec)
    for field in ("initContainers", "containers"):
        for container in _dicts(spec.get(field)):
            if isinstance(container["resources"], dict):
                _requests_from_limits(container["resources"])
    set_default(spec, "enableServiceLinks", True)
    set_default(spec, "serviceAccountName", "default")
    set_default(spec, "serviceAccount", spec["serviceAccountName"])
    set_default(spec, "preemptionPolicy", "PreemptLowerPriority")
    set_default(spec, "priority", 0)


def _template(spec: Raw) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
        metadata = set_default(template, "metadata", {})
        if isinstance(metadata, dict):
            metadata.setdefault("creationTimestamp", None)
        pod_spec = template.get("spec")
        if isinstance(pod_spec, dict):
            default_pod_spec(pod_spec)


def _rolling(strategy: Raw, surge: Any, unavailable: Any) -> None:
    set_default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = set_default(strategy, "rollingUpdate", {})
        if isinstance(rolling, dict):
            set_default(rolling, "maxUnavailable", unavailable)
            if surge is not None:
                set_default(rolling, "maxSurge", surge)


def _deployment(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "replicas", 1)
    set_default(spec, "revisionHistoryLimit", 10)
    set_default(spec, "progressDeadlineSeconds", 600)
    strategy = set_default(spec, "strategy", {})
    if isinstance(strategy, dict):
        _rolling(strategy, "25%", "25%")
    _template(spec)


def _replica_set(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "replicas", 1)
    _template(spec)


def _replication_controller(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "replicas", 1)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        set_default(spec, "selector", dict(labels))
        set_default(obj["metadata"], "labels", dict(labels))
    _template(spec)


def _stateful_set(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "replicas", 1)
    set_default(spec, "revisionHistoryLimit", 10)
    set_default(spec, "podManagementPolicy", "OrderedReady")
    set_default(spec, "persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    strategy = set_default(spec, "updateStrategy", {})
    if isinstance(strategy, dict):
        set_default(strategy, "type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            set_default(set_default(strategy, "rollingUpdate", {}), "partition", 0)
    _template(spec)


def _daemon_set(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "revisionHistoryLimit", 10)
    strategy = set_default(spec, "updateStrategy", {})
    if isinstance(strategy, dict):
        _rolling(strategy, 0, 1)
    _template(spec)


def default_job_spec(spec: Raw) -> None:
    """Fill the spec of a job, or of a cron job's template."""
    set_default(spec, "parallelism", 1)
    if spec.get("parallelism") == 1:
        set_default(spec, "completions", 1)
    set_default(spec, "backoffLimit", 6)
    set_default(spec, "completionMode", "NonIndexed")
    set_default(spec, "suspend", False)
    set_default(spec, "podReplacementPolicy", "TerminatingOrFailed")
    set_default(spec, "manualSelector", False)
    _template(spec)


def _job(obj: Raw) -> None:
    spec = _spec(obj)
    default_job_spec(spec)
    # The API server itself invents the selector of a job, from its uid.
    uid, metadata = obj["metadata"].get("uid"), obj["metadata"]
    if uid and not spec.get("manualSelector"):
        labels = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
        names = {"batch.kubernetes.io/job-name": metadata["name"], "job-name": metadata["name"]}
        template = spec.get("template")
        if isinstance(template, dict) and not spec.get("selector"):
            template_meta = set_default(template, "metadata", {})
            template_meta["labels"] = {**(template_meta.get("labels") or {}), **labels, **names}
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _cron_job(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "concurrencyPolicy", "Allow")
    set_default(spec, "suspend", False)
    set_default(spec, "successfulJobsHistoryLimit", 3)
    set_default(spec, "failedJobsHistoryLimit", 1)


def _service(obj: Raw) -> None:
    spec = _spec(obj)
    set_default(spec, "type", "ClusterIP")
    set_default(spec, "sessionAffinity", "None")
    for port in _dicts(spec.get("ports")):
        set_default(port, "protocol", "TCP")
        # Typed clients always send it: zero and "" are how they leave it to the server.
        port["targetPort"] = port.get("targetPort") or port.get("port")
    if spec["type"] != "ExternalName":
        set_default(spec, "internalTrafficPolicy", "Cluster")


def _namespace(obj: Raw) -> None:
    set_default(_spec(obj), "finalizers", ["kubernetes"])
    labels = set_default(obj["metadata"], "labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    set_default(set_default(obj, "status", {}), "phase", "Active")


def _secret(obj: Raw) -> None:
    set_default(obj, "type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _hpa(obj: Raw) -> None:
    hpa_versions.default_v2(obj)
    hpa_versions.settle_v2(obj)


def _limit_range(obj: Raw) -> None:
    """A container maximum is the default limit, and the default limit or the minimum the default request."""
    for item in _dicts(_spec(obj).get("limits")):
        if item.get("type") != "Container":
            continue
        limits = dict(item.get("default") or {})
        for name, value in (item.get("max") or {}).items():
            limits.setdefault(name, value)
        requests = dict(item.get("defaultRequest") or {})
        for source in (limits, item.get("min") or {}):
            for name, value in source.items():
                requests.setdefault(name, value)
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def _webhooks(obj: Raw) -> None:
    mutating = obj.get("kind") == "MutatingWebhookConfiguration"
    for hook in _dicts(obj.get("webhooks")):
        set_default(hook, "failurePolicy", "Fail")
        set_default(hook, "matchPolicy", "Equivalent")
        set_default(hook, "timeoutSeconds", 10)
        set_default(hook, "namespaceSelector", {})
        set_default(hook, "objectSelector", {})
        if mutating:
            set_default(hook, "reinvocationPolicy", "Never")
        for rule in _dicts(hook.get("rules")):
            set_default(rule, "scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if isinstance(service, dict):
            set_default(service, "port", 443)


def _api_service(obj: Raw) -> None:
    service = _spec(obj).get("service")
    if isinstance(service, dict):
        set_default(service, "port", 443)


def _crd(obj: Raw) -> None:
    spec = _spec(obj)
    names = set_default(spec, "names", {})
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        set_default(names, "singular", names["kind"].lower())
        set_default(names, "listKind", names["kind"] + "List")
    set_default(spec, "conversion", {"strategy": "None"})


def _role_binding(obj: Raw) -> None:
    set_default(obj.setdefault("roleRef", {}), "apiGroup", "rbac.authorization.k8s.io")
    for subject in _dicts(obj.get("subjects")):
        named = subject.get("kind") in ("User", "Group")
        set_default(subject, "apiGroup", "rbac.authorization.k8s.io" if named else "")
        if not named:
            subject.pop("apiGroup")


_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"

DEFAULTS: dict[ResourceKey, Callable[[Raw], None]] = {
    ResourceKey("", "pods"): _pod,
    ResourceKey("", "services"): _service,
    ResourceKey("", "namespaces"): _namespace,
    ResourceKey("", "secrets"): _secret,
    ResourceKey("", "limitranges"): _limit_range,
    ResourceKey("", "replicationcontrollers"): _replication_controller,
    ResourceKey("apps", "deployments"): _deployment,
    ResourceKey("apps", "replicasets"): _replica_set,
    ResourceKey("apps", "statefulsets"): _stateful_set,
    ResourceKey("apps", "daemonsets"): _daemon_set,
    ResourceKey("batch", "jobs"): _job,
    ResourceKey("batch", "cronjobs"): _cron_job,
    ResourceKey("autoscaling", "horizontalpodautoscalers"): _hpa,
    ResourceKey(_HOOKS, "mutatingwebhookconfigurations"): _webhooks,
    ResourceKey(_HOOKS, "validatingwebhookconfigurations"): _webhooks,
    ResourceKey("apiregistration.k8s.io", "apiservices"): _api_service,
    ResourceKey("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ResourceKey(_RBAC, "rolebindings"): _role_binding,
    ResourceKey(_RBAC, "clusterrolebindings"): _role_binding,
}
