"""Least privilege, component by component: what each may read and write, and nothing else.

The table is what `kubetide manifests` writes and what `kubetide check` asks the API server about. Tests run every
component under these rights, so that a right that is missing here is found here.
"""

from dataclasses import dataclass, replace
from typing import Any

Raw = dict[str, Any]

READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of one API group; `names` narrows it to single objects."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> Raw:
        """Return the rule as RBAC writes it."""
        rule: Raw = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule


_EVENTS = Right("", ("events",), ("create", "patch"))
_WORKLOADS = (
    Right("", ("replicationcontrollers",), READ),
    Right("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), READ),
    Right("batch", ("jobs", "cronjobs"), READ),
    Right("*", ("*/scale",), ("get",)),
)
_VPAS = Right("autoscaling.k8s.io", ("verticalpodautoscalers",), READ)

CLUSTER: dict[str, tuple[Right, ...]] = {
    "hpa": (
        # Patched are annotations alone: what learned headroom keeps over a restart.
        Right("autoscaling", ("horizontalpodautoscalers",), (*READ, "patch")),
        Right("autoscaling", ("horizontalpodautoscalers/status",), ("update", "patch")),
        Right("*", ("*/scale",), ("get", "update")),
        Right("", ("pods", "nodes"), READ),
        Right("apps", ("deployments", "replicasets", "statefulsets"), READ),
        Right("", ("replicationcontrollers",), READ),
        Right("metrics.k8s.io", ("pods",), ("get", "list")),
        Right("custom.metrics.k8s.io", ("*",), ("get", "list")),
        Right("external.metrics.k8s.io", ("*",), ("get", "list")),
        _EVENTS,
    ),
    "recommender": (
        Right("", ("pods", "nodes"), READ),
        Right("", ("events",), ("get", "list", "watch", "create", "patch")),
        Right("metrics.k8s.io", ("pods",), ("get", "list")),
        Right("external.metrics.k8s.io", ("*",), ("get", "list")),
        Right("autoscaling", ("horizontalpodautoscalers",), READ),
        _VPAS,
        Right("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("get", "patch")),
        Right(
            "autoscaling.k8s.io",
            ("verticalpodautoscalercheckpoints",),
            ("get", "list", "watch", "create", "patch", "delete"),
        ),
        *_WORKLOADS,
    ),
    "updater": (
        Right("", ("pods", "nodes", "limitranges"), READ),
        Right("", ("pods",), ("patch",)),
        Right("", ("pods/eviction",), ("create",)),
        Right("", ("pods/resize",), ("patch",)),
        Right("metrics.k8s.io", ("pods",), ("get", "list")),
        _VPAS,
        Right("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("get", "patch")),
        Right("autoscaling.k8s.io", ("verticalpodautoscalercheckpoints",), READ),
        *_WORKLOADS,
        _EVENTS,
    ),
    "admission": (
        Right("", ("pods", "nodes", "limitranges"), READ),
        Right("", ("pods",), ("create",)),
        Right("metrics.k8s.io", ("pods",), ("get", "list")),
        Right(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            ("get", "list", "create", "update", "patch", "delete"),
        ),
        _VPAS,
        *_WORKLOADS,
        _EVENTS,
    ),
    "slo": (
        Right("", ("nodes", "pods", "configmaps"), READ),
        Right("", ("nodes", "nodes/status"), ("patch",)),
        Right("slo.koordinator.sh", ("nodeslos",), ("get", "list", "watch", "create", "patch", "delete")),
        Right("slo.koordinator.sh", ("nodemetrics",), ("get", "list", "watch", "create", "patch", "delete")),
        Right("topology.node.k8s.io", ("noderesourcetopologies",), ("get", "list", "watch", "patch")),
        Right("scheduling.koordinator.sh", ("devices",), READ),
        _EVENTS,
    ),
    "colocation": (
        Right("", ("namespaces",), READ),
        Right("scheduling.k8s.io", ("priorityclasses",), READ),
        Right("config.koordinator.sh", ("clustercolocationprofiles",), READ),
        Right(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            ("get", "create", "update", "delete"),
        ),
        _EVENTS,
    ),
    "node": (
        Right("", ("nodes", "pods", "persistentvolumeclaims"), READ),
        Right("", ("nodes/proxy", "nodes/pods", "nodes/configz", "nodes/stats", "nodes/metrics"), ("get",)),
        Right("", ("pods/eviction",), ("create",)),
        Right("slo.koordinator.sh", ("nodeslos", "nodemetrics"), READ),
        Right("slo.koordinator.sh", ("nodemetrics/status",), ("get", "update", "patch")),
        Right(
            "topology.node.k8s.io", ("noderesourcetopologies",), ("get", "list", "watch", "create", "update", "patch")
        ),
        Right("scheduling.koordinator.sh", ("devices",), ("get", "list", "watch", "create", "update", "patch")),
        _EVENTS,
    ),
}
"""Rights in the whole cluster."""

_LEASE = ("get", "create", "update")


@dataclass(frozen=True, slots=True)
class Local:
    """Rights in one namespace; without one, where kubetide runs."""

    right: Right
    namespace: str = ""


LOCAL: dict[str, tuple[Local, ...]] = {
    "hpa": (Local(Right("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "recommender": (Local(Right("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "updater": (
        Local(Right("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),
        # The admission controller's lease lies where both run.
        Local(Right("coordination.k8s.io", ("leases",), ("get",))),
    ),
    "admission": (
        Local(Right("coordination.k8s.io", ("leases",), _LEASE)),
        Local(Right("", ("secrets",), ("get", "create", "update"))),
    ),
    "slo": (Local(Right("coordination.k8s.io", ("leases",), _LEASE), "koordinator-system"),),
    "colocation": (
        Local(Right("", ("secrets",), ("get", "create", "update"))),
        Local(Right("", ("configmaps",), READ), "koordinator-system"),
    ),
    "node": (),
}
"""Rights in single namespaces."""


_OBSERVED = {"updater": (Right("", ("events",), READ),)}
"""What a dry run reads beyond what the component itself reads: what upstream did, to compare with."""


def read_only(component: str) -> tuple[Right, ...]:
    """Return what is left of a component's rights in the whole cluster when it only looks."""
    return (*_reading(CLUSTER[component]), *_OBSERVED.get(component, ()))


def read_only_local(component: str) -> tuple[Local, ...]:
    """Return what is left of a component's rights in single namespaces: no Secrets, for it serves no webhook."""
    return tuple(
        Local(right, local.namespace)
        for local in LOCAL[component]
        for right in _reading((local.right,))
        if "secrets" not in right.resources
    )


def _reading(rights: tuple[Right, ...]) -> list[Right]:
    kept = [replace(right, verbs=tuple(verb for verb in right.verbs if verb in READ)) for right in rights]
    return [right for right in kept if right.verbs]
