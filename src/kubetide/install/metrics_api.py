"""What makes the metrics server part of the API: its APIServices, and who may read what it serves.

The CA of the APIServices is written by the server itself, which makes and rotates its certificates. The role that lets
people read usage joins the roles view, edit and admin, as that of metrics-server does. Custom and external metrics have
roles of their own, which nobody is given by default, and so has the front, which asks other servers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kubetide.api.objects.sample_frames import STREAM_AUDIENCE, STREAM_SERVICE

Raw = dict[str, Any]

USAGE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
_VERSIONS = {USAGE: ("v1beta1",), CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}


def metrics_api_objects(namespace: str, groups: Sequence[str] = (USAGE,)) -> list[Raw]:
    """Return the APIServices of the groups, and the roles of readers."""
    joins = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}
    return [
        *api_services(namespace, groups),
        _role(f"kubetide-reader-{USAGE}", {USAGE: ["pods", "nodes"]}, joins),
        _role(f"kubetide-reader-{CUSTOM}", {CUSTOM: ["*"]}),
        _role(f"kubetide-reader-{EXTERNAL}", {EXTERNAL: ["*"]}),
        _role("kubetide-metrics-front", {CUSTOM: ["*"], EXTERNAL: ["*"]}),
    ]


def api_services(namespace: str, groups: Sequence[str]) -> list[Raw]:
    """Return the APIServices that lead groups of metrics to the server; it writes their CA itself."""
    return [_api_service(group, version, namespace) for group in groups for version in _VERSIONS[group]]


def give_stream_token(spec: Raw) -> None:
    """Give the agent's pod a token that is good for the metrics server alone, and bound to the pod and its node."""
    token = {"audience": STREAM_AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    spec["volumes"].append({"name": "metrics-token", "projected": {"sources": [{"serviceAccountToken": token}]}})
    mount = {"name": "metrics-token", "mountPath": "/var/run/secrets/kubetide/metrics", "readOnly": True}
    spec["containers"][0]["volumeMounts"].append(mount)


def _api_service(group: str, version: str, namespace: str) -> Raw:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "service": {"name": STREAM_SERVICE, "namespace": namespace, "port": 443},
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


def _role(name: str, resources: Mapping[str, list[str]], labels: Mapping[str, str] | None = None) -> Raw:
    verbs = ["get", "list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, **({"labels": dict(labels)} if labels else {})},
        "rules": [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names in resources.items()],
    }
