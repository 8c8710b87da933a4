"""The parts of remedies that have to be computed: workloads as kubectl names them, amounts, patches."""

import json
from collections.abc import Iterable, Sequence

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.vpa import ContainerResourcePolicy, VerticalPodAutoscaler
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.verdicts.core.view import ClusterView, amount_of

_USUAL = {"cpu": "100m", "memory": "128Mi"}
"""What is suggested where nothing has been measured."""

_MEBI = 1024**2
_LEAST = {"cpu": Quantity.of_milli(50), "memory": Quantity.of(32 * _MEBI)}
"""Below this a percentage of the request says nothing: an idle process moves it by more than its target."""

_METRICS_SERVERS = ("metrics-server", "kubetide-metrics", "prometheus-adapter")


def workload_argument(kind: str, name: str) -> str:
    """Return a workload as kubectl takes it: `deployment/web`."""
    return f"{kind.lower()}/{name}"


def measured_request(view: ClusterView, pods: Iterable[Pod], container: str, resource: str) -> str:
    """Return a request that covers what a container uses now; a usual one where no usage is known."""
    most = ZERO
    for pod in pods:
        usage = view.usage.get(key_of(pod))
        for one in usage.containers or () if usage is not None else ():
            if one.name == container and resource in (one.usage or {}):
                most = max(most, (amount_of((one.usage or {})[resource]) or ZERO))
    return rounded(resource, max(most, _LEAST.get(resource, ZERO))) if most else _USUAL.get(resource, "1")


def rounded(resource: str, amount: Quantity) -> str:
    """Return an amount rounded up to what people write: tens of millicores, whole Mi."""
    if resource == "cpu":
        return f"{-(-amount.milli // 10) * 10}m"
    if resource == "memory":
        return f"{-(-amount.value // _MEBI)}Mi"
    return str(amount)


def raised(text: str | int | float, resource: str) -> str:
    """Return half as much again of an amount."""
    amount = amount_of(text) or ZERO
    return rounded(resource, Quantity(amount.nanos * 3 // 2, amount.notation))


def without_resource(vpa: VerticalPodAutoscaler, resources: Iterable[str]) -> str:
    """Return the JSON patch that takes resources away from a VPA and changes nothing else of its policy."""
    taken = set(resources)
    policies = _policies(vpa)
    if not policies:
        left = [name for name in ("cpu", "memory") if name not in taken]
        policy = {"containerPolicies": [{"containerName": "*", "controlledResources": left}]}
        return _patch([{"op": "add", "path": "/spec/resourcePolicy", "value": policy}])
    steps: list[dict[str, object]] = []
    for position, entry in enumerate(policies):
        controlled = ("cpu", "memory") if entry.controlled_resources is None else entry.controlled_resources
        left = [name for name in controlled if name not in taken]
        path = f"/spec/resourcePolicy/containerPolicies/{position}/controlledResources"
        steps.append({"op": "add", "path": path, "value": left})
    if all(entry.container_name != "*" for entry in policies):
        left = [name for name in ("cpu", "memory") if name not in taken]
        value = {"containerName": "*", "controlledResources": left}
        steps.append({"op": "add", "path": "/spec/resourcePolicy/containerPolicies/-", "value": value})
    return _patch(steps)


def with_bound(vpa: VerticalPodAutoscaler, container: str, bound: str, resource: str, amount: str) -> str:
    """Return the JSON patch that sets one bound of the policy that governs a container."""
    names = [entry.container_name for entry in _policies(vpa)]
    position = names.index(container) if container in names else len(names) - 1 - names[::-1].index("*")
    path = f"/spec/resourcePolicy/containerPolicies/{position}/{bound}/{resource}"
    return _patch([{"op": "replace", "path": path, "value": amount}])


def metrics_path(namespace: str, metric_type: str, name: str) -> str:
    """Return the path at which a controller asks for a metric."""
    if metric_type == "External":
        return f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"
    if metric_type in ("Pods", "Object"):
        kind = "pods" if metric_type == "Pods" else "services"
        return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{kind}/*/{name}"
    return f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"


def closest(name: str, names: Sequence[str]) -> str:
    """Return the name that was probably meant; empty where none is close."""
    import difflib  # takes long to import, and is wanted for mistakes only

    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.6)), "")


def restart_of(key: ObjectKey) -> str:
    """Return the command that restarts the pods of a deployment."""
    return f"kubectl rollout restart deployment/{key.name} -n {key.namespace}"


def restart_metrics(view: ClusterView) -> str:
    """Return the command that restarts whoever serves metrics.k8s.io, as far as the view shows."""
    return restart_of(deployed(view, _METRICS_SERVERS) or ObjectKey("kube-system", _METRICS_SERVERS[0]))


def deployed(view: ClusterView, names: Sequence[str]) -> ObjectKey | None:
    """Return the deployment that has the first of these names, in whichever namespace."""
    here = [key_of(deployment) for deployment in view.deployments]
    return next((key for name in names for key in here if key.name == name), None)


def _policies(vpa: VerticalPodAutoscaler) -> tuple[ContainerResourcePolicy, ...]:
    policy = vpa.spec.resource_policy
    return (policy.container_policies if policy is not None else None) or ()


def _patch(steps: list[dict[str, object]]) -> str:
    return json.dumps(steps, separators=(",", ":"))
