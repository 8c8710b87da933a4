"""What the metrics server says it serves: groups, versions and resources, in the legacy form of discovery."""

from collections.abc import Iterable, Mapping
from typing import Any

from kubetide.metrics.core.requests import CUSTOM, EXTERNAL, SIGNALS, USAGE, VERSIONS

Raw = dict[str, Any]

_USAGE = [
    {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
    {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
    {"name": SIGNALS, "singularName": "", "namespaced": True, "kind": "PodSignals", "verbs": ["list", "watch"]},
]


def group_list(groups: Iterable[str]) -> Raw:
    """Return what `/apis` answers."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name) for name in groups]}


def group(name: str) -> Raw:
    """Return what `/apis/GROUP` answers."""
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in VERSIONS[name]]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def resource_list(name: str, version: str, metrics: Mapping[str, bool]) -> Raw:
    """Return what `/apis/GROUP/VERSION` answers; `metrics` are the custom or external ones, and whether namespaced."""
    kinds = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
    resources = (
        _USAGE
        if name == USAGE
        else [
            {"name": metric, "singularName": "", "namespaced": namespaced, "kind": kinds[name], "verbs": ["get"]}
            for metric, namespaced in sorted(metrics.items())
        ]
    )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{name}/{version}", "resources": resources}
