"""A small healthy cluster as raw objects, to be broken in one place by each test.

A deployment `web` of two ready pods in `shop` on one node, with an HPA, a VPA, a budget, and a webhook that patches.
"""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from kubetide.api.objects.apps import DaemonSet, Deployment, PodDisruptionBudget, StatefulSet
from kubetide.api.objects.core import Lease, Node, Pod, ResourceQuota
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.verdicts.core.view import ClusterView

Raw = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FRESH = "2026-03-01T11:59:50Z"
OLD = "2026-03-01T11:30:00Z"
SHOP = "shop"

_MEMBERS: dict[str, tuple[str, type[Any]]] = {
    "Deployment": ("deployments", Deployment),
    "StatefulSet": ("stateful_sets", StatefulSet),
    "DaemonSet": ("daemon_sets", DaemonSet),
    "HorizontalPodAutoscaler": ("hpas", HorizontalPodAutoscaler),
    "VerticalPodAutoscaler": ("vpas", VerticalPodAutoscaler),
    "PodDisruptionBudget": ("pdbs", PodDisruptionBudget),
    "Pod": ("pods", Pod),
    "Node": ("nodes", Node),
    "ResourceQuota": ("quotas", ResourceQuota),
    "Lease": ("leases", Lease),
    "MutatingWebhookConfiguration": ("webhooks", TypedObject),
    "PodMetrics": ("pod_metrics", PodMetrics),
    "NodeMetric": ("node_metrics", NodeMetric),
}


def meta(name: str, namespace: str = SHOP, **more: Any) -> Raw:
    return {"name": name, "namespace": namespace, "creationTimestamp": OLD, **more}


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Raw:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def resources(**requests: str) -> Raw:
    return {"requests": requests, "limits": {"memory": "256Mi"}}


def container(name: str = "main") -> Raw:
    return {"name": name, "resources": resources(cpu="500m", memory="128Mi")}


def deployment(name: str = "web", labels: Raw | None = None) -> Raw:
    chosen = labels or {"app": name}
    template = {"metadata": {"labels": chosen}, "spec": {"containers": [container()]}}
    spec = {"replicas": 2, "selector": {"matchLabels": chosen}, "template": template}
    return {"kind": "Deployment", "metadata": meta(name), "spec": spec, "status": {"replicas": 2, "readyReplicas": 2}}


def pod(name: str = "web-1a-x", owner: str = "web-1a", labels: Raw | None = None) -> Raw:
    owners = [{"kind": "ReplicaSet", "name": owner, "controller": True, "uid": "u"}]
    status = {
        "phase": "Running",
        "startTime": OLD,
        "conditions": [condition("Ready"), condition("PodScheduled")],
        "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}}],
    }
    return {
        "kind": "Pod",
        "metadata": meta(name, labels=labels or {"app": "web"}, ownerReferences=owners),
        "spec": {"nodeName": "node-1", "containers": [container()]},
        "status": status,
    }


def hpa(name: str = "web", target: str = "web") -> Raw:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    current = {"averageUtilization": 54, "averageValue": "270m"}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta(name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 5,
            "metrics": [metric],
        },
        "status": {
            "currentReplicas": 2,
            "desiredReplicas": 2,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}],
            "conditions": [
                condition("AbleToScale", reason="ReadyForNewScale"),
                condition("ScalingActive", reason="ValidMetricFound"),
                condition("ScalingLimited", "False", "DesiredWithinRange"),
            ],
        },
    }


def vpa(name: str = "web", target: str = "web") -> Raw:
    policy = {"containerName": "*", "controlledResources": ["memory"], "maxAllowed": {"memory": "1Gi"}}
    one = {"containerName": "main", "target": {"memory": "128Mi"}, "uncappedTarget": {"memory": "128Mi"}}
    return {
        "kind": "VerticalPodAutoscaler",
        "metadata": meta(name),
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
        "status": {
            "recommendation": {"containerRecommendations": [one]},
            "conditions": [condition("RecommendationProvided")],
        },
    }


def pdb(name: str = "web") -> Raw:
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    return {"kind": "PodDisruptionBudget", "metadata": meta(name), "spec": spec, "status": status}


def node(name: str = "node-1", cpu: str = "4") -> Raw:
    has = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    status = {"capacity": has, "allocatable": has, "conditions": [condition("Ready")]}
    return {"kind": "Node", "metadata": meta(name, ""), "spec": {}, "status": status}


def lease() -> Raw:
    notes = {"kubetide.io/patching": "true"}
    return {
        "kind": "Lease",
        "metadata": meta("vpa-admission-controller", "kube-system", annotations=notes),
        "spec": {"holderIdentity": "a", "renewTime": FRESH},
    }


def usage(name: str, at: str = FRESH) -> Raw:
    used = {"name": "main", "usage": {"cpu": "243m", "memory": "100Mi"}}
    return {"kind": "PodMetrics", "metadata": meta(name), "timestamp": at, "window": "30s", "containers": [used]}


class Town:
    """The objects by kind and name; a test changes them and asks for the view."""

    def __init__(self) -> None:
        self.objects: list[Raw] = []
        self.add(deployment(), pod(), pod("web-1a-y"), hpa(), vpa(), pdb(), node(), lease())
        self.add(usage("web-1a-x"), usage("web-1a-y"))
        self.add({"kind": "MutatingWebhookConfiguration", "metadata": meta("vpa-webhook-config", "")})
        self.absent: set[str] = set()
        self.unreadable: dict[str, str] = {}

    def add(self, *objects: Raw) -> None:
        self.objects += [deepcopy(one) for one in objects]

    def get(self, kind: str, name: str = "") -> Raw:
        return next(one for one in self.objects if one["kind"] == kind and name in ("", one["metadata"]["name"]))

    def all(self, kind: str) -> list[Raw]:
        return [one for one in self.objects if one["kind"] == kind]

    def remove(self, kind: str) -> None:
        self.objects = [one for one in self.objects if one["kind"] != kind]

    def view(self) -> ClusterView:
        lists: dict[str, Any] = {member: [] for member, _ in _MEMBERS.values()}
        for one in self.objects:
            member, struct = _MEMBERS[one["kind"]]
            lists[member].append(convert({key: value for key, value in one.items() if key != "kind"}, struct))
        lists = {member: tuple(items) for member, items in lists.items()}
        return ClusterView(
            now=NOW,
            absent=frozenset(self.absent),
            unreadable=self.unreadable,
            **lists,
        )
