"""A node with batch resources, as values: the worked example of the specification, to be varied."""

from datetime import UTC, datetime, timedelta
from typing import Any

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.codec import convert
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.claims import PodClaim, claim_of
from kubetide.slo.settings import SloSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STRATEGY = {
    "enable": True,
    "cpuReclaimThresholdPercent": 60,
    "memoryReclaimThresholdPercent": 65,
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
}


def node(**allocatable: str) -> Node:
    resources = {"cpu": "10", "memory": "10Gi"}
    extended = {f"kubernetes.io/{name.replace('_', '-')}": text for name, text in allocatable.items()}
    status = {"capacity": {**resources, **extended}, "allocatable": {**resources, **extended}}
    return convert({"metadata": {"name": "n"}, "status": status}, Node)


def pod(name: str = "web", **labels: str) -> PodClaim:
    requests = {"cpu": "2", "memory": "2Gi"}
    raw = {
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return claim_of(convert(raw, Pod))


def metric(*pods: dict[str, Any], age: timedelta = timedelta(0)) -> NodeMetric:
    status = {
        "updateTime": (NOW - age).isoformat(),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": "500m", "memory": "512Mi"}}},
        "podsMetric": list(pods),
    }
    return convert({"status": status}, NodeMetric)


def observe(**changes: Any) -> NodeObservation:
    parts: dict[str, Any] = {
        "node": node(),
        "pods": [pod()],
        "metric": metric(),
        "topology": None,
        "zones": (),
        "topology_annotations": {},
        "device": None,
        "colocation": STRATEGY,
        "normalization": {"enable": False},
    }
    return NodeObservation(**{**parts, **changes})


def lent(seen: NodeObservation, settings: SloSettings | None = None) -> dict[str, str | None]:
    decision = decide_node(seen, settings or SloSettings(), NOW)
    return {item.name: None if item.quantity is None else str(item.quantity.value) for item in decision.items}
