"""The objects that install a component: service account, roles, workload, service."""

from typing import Any

from kubetide import crds
from kubetide.install.rbac import CLUSTER, LOCAL, read_only, read_only_local
from kubetide.install.slo_webhook import SloWebhook, switch_on, webhook_objects

Raw = dict[str, Any]

COMPONENTS = ("hpa", "recommender", "updater", "admission", "slo", "colocation", "node")

_CRDS = {
    "recommender": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "updater": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "admission": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "slo": ("nodeslos", "nodemetrics", "noderesourcetopologies", "devices"),
    "colocation": ("clustercolocationprofiles",),
    "node": ("nodeslos", "nodemetrics", "noderesourcetopologies", "devices"),
}
_PORTS = {
    "hpa": 8941,
    "recommender": 8942,
    "updater": 8943,
    "admission": 8944,
    "slo": 8080,
    "colocation": 8946,
    "node": 9316,
}
# CPU request, memory request, memory limit to begin with; the CPU is never limited, so that a loop is never late.
_SIZES = {
    "hpa": ("100m", "128Mi", "1Gi"),
    "recommender": ("200m", "256Mi", "2Gi"),
    "updater": ("100m", "128Mi", "1Gi"),
    "admission": ("50m", "128Mi", "512Mi"),
    "slo": ("100m", "256Mi", "2Gi"),
    "colocation": ("50m", "128Mi", "512Mi"),
    "node": ("50m", "128Mi", "256Mi"),
}
# Component -> (Service, port) of the webhooks that register themselves.
_WEBHOOKS = {"admission": ("vpa-webhook", 8000), "colocation": ("kubetide-colocation", 9877)}
_HOST_PATHS = {
    "cgroup": "/sys/fs/cgroup",
    "sys": "/sys",
    "proc": "/proc",
    "kubelet": "/var/lib/kubelet",
    "run": "/run",
    "state": "/var/lib/kubetide-node",
    "audit": "/var/log/kubetide-node",
}
_DEFAULT_SLO_CONFIG = {
    "colocation-config": '{"enable": false}',
    "resource-threshold-config": '{"clusterStrategy": {"enable": false}}',
}


def manifests(
    components: tuple[str, ...],
    *,
    namespace: str,
    image: str,
    with_crds: bool = True,
    replicas: int = 1,
    slo_webhook: SloWebhook | None = None,
) -> list[Raw]:
    """Return every object that the components need, in the order in which they must be created.

    `slo_webhook` switches the webhook of the SLO controller on, with that certificate.
    """
    wanted = dict.fromkeys(name for component in components for name in _CRDS.get(component, ()))
    objects = [crds.load(name) for name in wanted] if with_crds else []
    namespaces = {namespace, *(["koordinator-system"] if {"slo", "colocation"} & set(components) else [])}
    objects += [_object("v1", "Namespace", name) for name in sorted(namespaces - {"kube-system", "default"})]
    for component in components:
        webhook = slo_webhook if component == "slo" else None
        objects += [*_access(component, namespace), *_workload(component, namespace, image, replicas, webhook)]
    return objects


DRY_RUN = ("hpa", "recommender", "updater", "slo", "node")
"""Components that can say what they would do."""


def dry_run_manifests(components: tuple[str, ...], *, namespace: str, image: str) -> list[Raw]:
    """Return what lets components look and write nothing: objects of their own, beside those that act.

    Custom resource definitions are not among them: without its objects a component would have nothing to say.
    """
    objects = [_object("v1", "Namespace", namespace)] if namespace not in ("kube-system", "default") else []
    for component in components:
        local: dict[str, list[Raw]] = {}
        for each in read_only_local(component):
            local.setdefault(each.namespace or namespace, []).append(each.right.rule())
        name = f"{account(component)}-dry-run"
        objects += _bound(name, namespace, [permission.rule() for permission in read_only(component)], local)
        objects.append(_looking(component, namespace, image))
    return objects


def _looking(component: str, namespace: str, image: str) -> Raw:
    """Return the workload of a component that only looks."""
    acting = _daemon_set(namespace, image) if component == "node" else _deployment(component, namespace, image, 1)
    name, labels = f"{account(component)}-dry-run", _labels(f"{component}-dry-run")
    acting["metadata"]["name"] = name
    spec = acting["spec"]["template"]["spec"]
    spec["serviceAccountName"] = name
    (container,) = spec["containers"]
    # What an agent keeps for itself is not kept, and the host is mounted so that it could not be written.
    kept = ("--metric-history-path", "--prediction-checkpoint-filepath", "--audit-log-dir")
    container["args"] = [*(arg for arg in container["args"] if not arg.startswith(kept)), "--dry-run"]
    if component == "node":
        own = ("state", "audit")
        spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in own]
        mounts = [each for each in container["volumeMounts"] if each["name"] not in own]
        container["volumeMounts"] = [{**each, "readOnly": True} for each in mounts]
    acting["spec"]["selector"]["matchLabels"] = labels
    acting["spec"]["template"]["metadata"]["labels"] = labels
    return acting


def required_crds(component: str) -> list[tuple[str, str]]:
    """Return the custom resources a component needs, as (plural, full name)."""
    return [(name, crds.load(name)["metadata"]["name"]) for name in _CRDS.get(component, ())]


def account(component: str) -> str:
    """Return the name of a component's service account."""
    return f"kubetide-{component}"


def _access(component: str, namespace: str) -> list[Raw]:
    by_namespace: dict[str, list[Raw]] = {}
    for local in LOCAL[component]:
        by_namespace.setdefault(local.namespace or namespace, []).append(local.right.rule())
    return _bound(account(component), namespace, [right.rule() for right in CLUSTER[component]], by_namespace)


def _bound(name: str, namespace: str, rules: list[Raw], by_namespace: dict[str, list[Raw]]) -> list[Raw]:
    """Return a service account, its rules in the cluster and in single namespaces, and what binds them."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects = [
        _object("v1", "ServiceAccount", name, namespace),
        {**_object("rbac.authorization.k8s.io/v1", "ClusterRole", name), "rules": rules},
        {
            **_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    ]
    for where, local_rules in by_namespace.items():
        objects.append({**_object("rbac.authorization.k8s.io/v1", "Role", name, where), "rules": local_rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = _object("rbac.authorization.k8s.io/v1", "RoleBinding", name, where)
        objects.append({**binding, "roleRef": role, "subjects": [subject]})
    return objects


def _workload(component: str, namespace: str, image: str, replicas: int, webhook: SloWebhook | None) -> list[Raw]:
    if component == "node":
        return [_daemon_set(namespace, image)]
    objects = [_deployment(component, namespace, image, replicas)]
    if component in _WEBHOOKS:
        objects.append(_webhook_service(component, namespace))
    if component == "colocation":
        objects += _priority_classes()
    if component == "slo":
        config = _object("v1", "ConfigMap", "slo-controller-config", "koordinator-system")
        objects.append({**config, "data": dict(_DEFAULT_SLO_CONFIG)})
    if webhook is not None:
        switch_on(objects[0])
        # After the ConfigMap, which nobody could judge before the controller runs.
        objects += webhook_objects(webhook, namespace, _labels(component))
    return objects


def _deployment(component: str, namespace: str, image: str, replicas: int) -> Raw:
    ports = [{"name": "metrics", "containerPort": _PORTS[component]}]
    if component in _WEBHOOKS:
        ports.append({"name": "webhook", "containerPort": _WEBHOOKS[component][1]})
    container = {
        **_container(component, image),
        "args": ["run", component],
        # Webhooks look there for its lease, its certificate and its Service; leases announce the pod.
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (
                ("NAMESPACE", "metadata.namespace"),
                ("POD_NAME", "metadata.name"),
                ("POD_IP", "status.podIP"),
            )
        ],
        "ports": ports,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    spec = {
        "serviceAccountName": account(component),
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    labels = _labels(component)
    return {
        **_object("apps/v1", "Deployment", account(component), namespace),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _daemon_set(namespace: str, image: str) -> Raw:
    node_name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        **_container("node", image),
        "args": [
            "node",
            "--cgroup-root-dir=/host/cgroup",
            "--sys-root-dir=/host/sys",
            "--sys-fs-root-dir=/host/sys/fs",
            "--proc-root-dir=/host/proc",
            "--run-root-dir=/host/run",
            "--var-run-root-dir=/host/run",
            "--kubelet-root-dir=/host/kubelet",
            "--metric-history-path=/host/state",
            "--prediction-checkpoint-filepath=/host/state/prediction",
            "--audit-log-dir=/host/audit",
            "--host-mode=false",
        ],
        "env": [node_name],
        "ports": [{"name": "metrics", "containerPort": _PORTS["node"]}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": f"/host/{name}"} for name in _HOST_PATHS],
    }
    create = {"state", "audit"}
    spec = {
        "serviceAccountName": account("node"),
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {
                "name": name,
                "hostPath": {"path": path, **({"type": "DirectoryOrCreate"} if name in create else {})},
            }
            for name, path in _HOST_PATHS.items()
        ],
    }
    labels = _labels("node")
    return {
        **_object("apps/v1", "DaemonSet", account("node"), namespace),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _webhook_service(component: str, namespace: str) -> Raw:
    name, port = _WEBHOOKS[component]
    spec = {"selector": _labels(component), "ports": [{"port": 443, "targetPort": port}]}
    return {**_object("v1", "Service", name, namespace), "spec": spec}


def _priority_classes() -> list[Raw]:
    """Return the four classes that profiles name."""
    values = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    return [
        {
            **_object("scheduling.k8s.io/v1", "PriorityClass", name),
            "value": value,
            "description": f"Pods of the {name.removeprefix('koord-')} tier.",
        }
        for name, value in values.items()
    ]


def _container(component: str, image: str) -> Raw:
    cpu, memory, limit = _SIZES[component]
    port = _PORTS[component]
    return {
        "name": component,
        "image": image,
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": port},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 5},
    }


def _labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "kubetide", "app.kubernetes.io/component": component}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Raw:
    metadata: Raw = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
