"""The objects that install a component: service account, roles, workload, service."""

from collections.abc import Iterable
from typing import Any

from kubetide import crds
from kubetide.api.objects.sample_frames import STREAM_SERVICE
from kubetide.install.metrics_api import metrics_api_objects
from kubetide.install.rbac import BESIDE_UPSTREAM, CLUSTER, LOCAL, narrowed, read_only, read_only_local
from kubetide.install.sizes import DEFAULT
from kubetide.install.slo_webhook import DEFAULT_SLO_CONFIG, SloWebhook, switch_on, webhook_objects
from kubetide.install.workloads import account, container_of, daemon_set, labels_of, plain_deployment, plain_object

Raw = dict[str, Any]

COMPONENTS = ("hpa", "recommender", "updater", "admission", "policy", "slo", "colocation", "node", "metrics", "plan")
ALL = tuple(name for name in COMPONENTS if name not in ("metrics", "plan"))
"""What is installed where nothing is named: metrics takes metrics.k8s.io over from a server, plan brings an API."""

_CRDS = {
    "recommender": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "updater": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "admission": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "policy": ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
    "plan": ("workloadplans", "verticalpodautoscalers", "verticalpodautoscalercheckpoints"),
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
    "policy": 8947,
    "node": 9316,
    "metrics": 8948,
    "plan": 8949,
}
# Component -> (Service, port) of what the API server calls.
_WEBHOOKS = {
    "admission": ("vpa-webhook", 8000),
    "colocation": ("kubetide-colocation", 9877),
    "metrics": (STREAM_SERVICE, 10250),
}


def manifests(
    components: tuple[str, ...],
    *,
    namespace: str,
    image: str,
    with_crds: bool = True,
    replicas: int = 1,
    slo_webhook: SloWebhook | None = None,
    watched: str = "",
    size: str = DEFAULT,
) -> list[Raw]:
    """Return every object that the components need, in the order in which they must be created.

    `slo_webhook` switches the webhook of the SLO controller on, with that certificate. With `watched`, components see
    and change that namespace alone; what has no namespace (nodes, registrations) they still read. `size` is one of
    `sizes.PODS`.
    """
    wanted = dict.fromkeys(name for component in components for name in _CRDS.get(component, ()))
    objects = [crds.load(name) for name in wanted] if with_crds else []
    namespaces = {namespace, *(namespaces_of(components))}
    objects += [plain_object("v1", "Namespace", name) for name in sorted(namespaces - {"kube-system", "default"})]
    for component in components:
        webhook = slo_webhook if component == "slo" else None
        objects += component_objects(
            component,
            namespace=namespace,
            image=image,
            replicas=replicas,
            slo_webhook=webhook,
            watched=watched,
            size=size,
        )
    return objects


def component_objects(
    component: str,
    *,
    namespace: str,
    image: str,
    replicas: int = 1,
    slo_webhook: SloWebhook | None = None,
    watched: str = "",
    size: str = DEFAULT,
) -> list[Raw]:
    """Return the objects of one component: what it may do, its workload, and what belongs to it."""
    workload = _workload(component, namespace, image, replicas, slo_webhook, size)
    if watched:
        (container,) = workload[0]["spec"]["template"]["spec"]["containers"]
        scope, lease = NAMESPACED[component]
        # The Lease lies beside the component: another one may serve another namespace at the same time.
        container["args"] += [f"--{scope}={watched}", *([f"--{lease}={namespace}"] if lease else [])]
    return [*_access(component, namespace, watched), *workload]


def namespaces_of(components: Iterable[str]) -> list[str]:
    """Return the namespaces beside their own in which components keep objects."""
    return ["koordinator-system"] if {"slo", "colocation"} & set(components) else []


NAMESPACED = {
    "hpa": ("hpa-namespace", "hpa-leader-elect-resource-namespace"),
    "recommender": ("vpa-object-namespace", "leader-elect-resource-namespace"),
    "updater": ("vpa-object-namespace", "leader-elect-resource-namespace"),
    "admission": ("vpa-object-namespace", ""),
    "plan": ("plan-namespace", "plan-leader-elect-resource-namespace"),
}
"""Components that can be kept to one namespace: the flag that does, and the one that says where their Lease lies."""

DRY_RUN = ("hpa", "recommender", "updater", "policy", "plan", "slo", "node")
"""Components that can say what they would do."""


def dry_run_manifests(components: tuple[str, ...], *, namespace: str, image: str) -> list[Raw]:
    """Return what lets components look and write nothing: objects of their own, beside those that act.

    Custom resource definitions are not among them: without its objects a component would have nothing to say.
    """
    objects = [plain_object("v1", "Namespace", namespace)] if namespace not in ("kube-system", "default") else []
    for component in components:
        local: dict[str, list[Raw]] = {}
        for each in read_only_local(component):
            local.setdefault(each.namespace or OWN, []).append(each.right.rule())
        name = f"{account(component)}-dry-run"
        objects += _bound(name, namespace, [permission.rule() for permission in read_only(component)], local)
        objects.append(_looking(component, namespace, image))
    return objects


def _looking(component: str, namespace: str, image: str) -> Raw:
    """Return the workload of a component that only looks."""
    acting = (
        daemon_set(namespace, image, _PORTS["node"], DEFAULT)
        if component == "node"
        else _deployment(component, namespace, image, 1, DEFAULT)
    )
    name, labels = f"{account(component)}-dry-run", labels_of(f"{component}-dry-run")
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


def _access(component: str, namespace: str, watched: str) -> list[Raw]:
    everywhere, inside = narrowed(CLUSTER[component]) if watched else (CLUSTER[component], ())
    local: dict[str, list[Raw]] = {watched: [right.rule() for right in inside]} if inside else {}
    for each in LOCAL[component]:
        local.setdefault(OWN if watched else each.namespace or OWN, []).append(each.right.rule())
    for each in BESIDE_UPSTREAM.get(component, ()) if watched else ():
        local.setdefault(each.namespace, []).append(each.right.rule())
    name = account(component)
    rules = [right.rule() for right in everywhere]
    return _bound(name, namespace, rules, local, cluster_name=f"{name}-{watched}" if watched else name)


OWN = ""
"""The namespace of the component itself."""


def _bound(
    name: str, namespace: str, rules: list[Raw], local: dict[str, list[Raw]], *, cluster_name: str = ""
) -> list[Raw]:
    """Return a service account, its rules in the cluster and in single namespaces, and what binds them.

    A role elsewhere carries the name of its namespace, so that it stands beside the component's own role also where
    both are in one namespace.
    """
    cluster_name = cluster_name or name
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects = [
        plain_object("v1", "ServiceAccount", name, namespace),
        {**plain_object("rbac.authorization.k8s.io/v1", "ClusterRole", cluster_name), "rules": rules},
        {
            **plain_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", cluster_name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_name},
            "subjects": [subject],
        },
    ]
    for where, local_rules in local.items():
        local_name, place = (f"{name}-{where}", where) if where != OWN else (name, namespace)
        group = "rbac.authorization.k8s.io/v1"
        objects.append({**plain_object(group, "Role", local_name, place), "rules": local_rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": local_name}
        binding = plain_object(group, "RoleBinding", local_name, place)
        objects.append({**binding, "roleRef": role, "subjects": [subject]})
    return objects


def _workload(
    component: str, namespace: str, image: str, replicas: int, webhook: SloWebhook | None, size: str
) -> list[Raw]:
    if component == "node":
        return [daemon_set(namespace, image, _PORTS["node"], size)]
    objects = [_deployment(component, namespace, image, replicas, size)]
    if component in _WEBHOOKS:
        objects.append(_webhook_service(component, namespace))
    if component == "colocation":
        objects += _priority_classes()
    if component == "metrics":
        objects += metrics_api_objects(namespace)
    if component == "slo":
        config = plain_object("v1", "ConfigMap", "slo-controller-config", "koordinator-system")
        objects.append({**config, "data": dict(DEFAULT_SLO_CONFIG)})
    if webhook is not None:
        switch_on(objects[0])
        # After the ConfigMap, which nobody could judge before the controller runs.
        objects += webhook_objects(webhook, namespace, labels_of(component))
    return objects


def _deployment(component: str, namespace: str, image: str, replicas: int, size: str) -> Raw:
    ports = [{"name": "metrics", "containerPort": _PORTS[component]}]
    if component in _WEBHOOKS:
        ports.append({"name": "webhook", "containerPort": _WEBHOOKS[component][1]})
    container = {
        **container_of(component, image, _PORTS[component], size),
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
    }
    return plain_deployment(component, namespace, container, replicas, priority="system-cluster-critical")


def _webhook_service(component: str, namespace: str) -> Raw:
    name, port = _WEBHOOKS[component]
    spec = {"selector": labels_of(component), "ports": [{"port": 443, "targetPort": port}]}
    return {**plain_object("v1", "Service", name, namespace), "spec": spec}


def _priority_classes() -> list[Raw]:
    """Return the four classes that profiles name."""
    values = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
    return [
        {
            **plain_object("scheduling.k8s.io/v1", "PriorityClass", name),
            "value": value,
            "description": f"Pods of the {name.removeprefix('koord-')} tier.",
        }
        for name, value in values.items()
    ]
