"""Ways to break one thing of the small cluster."""

from collections.abc import Callable
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from unit.verdicts.town import OLD, Town, condition, deployment, hpa, meta, pod, usage

WEB = ObjectKey("shop", "web")
POD = ObjectKey("shop", "web-1a-x")
NODE = ObjectKey("", "node-1")
Break = Callable[[Town], object]
Situation = tuple[Break, str, ObjectKey, dict[str, Any], str, str]
"""What is broken, kind, key, what the controller explains, the line, the remedy."""
SET = "kubectl set resources deployment/web -n shop"
PATCH_HPA = "kubectl patch hpa web -n shop --type=merge -p "


def set_path(raw: dict[str, Any], path: str, value: Any) -> None:
    """Set a member by its path; `None` removes it."""
    *steps, last = path.split(".")
    at: Any = raw
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    if value is None:
        at.pop(last, None)
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value


def change(kind: str, **members: Any) -> Break:
    """Break all objects of a kind; double underscores are dots."""

    def apply(town: Town) -> None:
        for one in town.all(kind):
            for path, value in members.items():
                set_path(one, path.replace("__", "."), value)

    return apply


def both(*breaks: Break) -> Break:
    return lambda town: [one(town) for one in breaks]


def status_of(kind: str, *conditions: dict[str, Any]) -> Break:
    return change(kind, status__conditions=list(conditions))


def no_cpu_request(town: Town, *, pods: bool = True, template: bool = True) -> None:
    if template:
        del town.get("Deployment")["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    for one in town.all("Pod") if pods else ():
        del one["spec"]["containers"][0]["resources"]["requests"]["cpu"]


def external(town: Town) -> None:
    source = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}
    town.get("HorizontalPodAutoscaler")["spec"]["metrics"] = [{"type": "External", "external": source}]


def ended(reason: str, *, ready: bool = False, at: str = "2026-03-01T11:59:00Z", restarts: int = 6) -> Break:
    terminated = {"reason": reason, "exitCode": 137 if reason == "OOMKilled" else 2, "finishedAt": at}
    state = {"name": "main", "ready": ready, "restartCount": restarts, "lastState": {"terminated": terminated}}
    return change("Pod", status__containerStatuses=[{**state, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])


def pending(town: Town) -> None:
    one = town.get("Pod")
    del one["spec"]["nodeName"]
    one["status"] = {"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable", "taints")]}


def quota(town: Town) -> None:
    status = {"hard": {"requests.cpu": "1200m"}, "used": {"requests.cpu": "1"}}
    town.add({"kind": "ResourceQuota", "metadata": meta("compute"), "status": status})


def managed(town: Town) -> None:
    fields = [
        {"manager": manager, "operation": "Update", "subresource": "status", "time": "2026-03-01T11:59:00Z"}
        for manager in ("kube-controller-manager", "kubetide-hpa")
    ]
    town.get("HorizontalPodAutoscaler")["metadata"]["managedFields"] = fields


def stale_usage(town: Town) -> None:
    town.remove("PodMetrics")
    town.add(usage("web-1a-x", OLD), usage("web-1a-y", OLD))


def node_report(town: Town) -> None:
    town.add({"kind": "NodeMetric", "metadata": meta("node-1", ""), "status": {"updateTime": OLD}})


def overlap(town: Town) -> None:
    """Another deployment whose pods carry the label that `web` selects by."""
    town.add(deployment("api", {"app": "web", "tier": "api"}), hpa("api", "api"))
    town.add(pod("api-2b-z", "api-2b", {"app": "web", "tier": "api"}))


def single(town: Town) -> None:
    town.objects.remove(town.get("Pod", "web-1a-y"))
    town.get("Deployment")["spec"]["replicas"] = 1
    town.get("Deployment")["status"] = {"replicas": 1, "readyReplicas": 1}


def all_resources(town: Town) -> None:
    del town.get("VerticalPodAutoscaler")["spec"]["resourcePolicy"]


def bounded(**amounts: Any) -> Break:
    policy = {"containerName": "*", "controlledResources": ["memory"], **amounts}
    return change("VerticalPodAutoscaler", spec__resourcePolicy={"containerPolicies": [policy]})


def bound_patch(bound: str) -> str:
    path = f"/spec/resourcePolicy/containerPolicies/0/{bound}/memory"
    return f"""kubectl patch vpa web -n shop --type=json -p '[{{"op":"replace","path":"{path}","value":"128Mi"}}]'"""


DOWN = condition("Ready", "False", "KubeletNotReady", "container runtime is down")
UNREADY = condition("Ready", "False", "ContainersNotReady", "containers with unready status: [main]")
NARROW = (
    """kubectl patch vpa web -n shop --type=json -p '[{"op":"add","path":"/spec/resourcePolicy","value":"""
    """{"containerPolicies":[{"containerName":"*","controlledResources":["memory"]}]}}]'"""
)
