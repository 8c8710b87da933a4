"""Least privilege, component by component: what each may read and write, and nothing else.

The table is what `kubetide manifests` writes and what `kubetide doctor` asks the API server about. Tests run every
component with these permissions, so that one that is missing here is found here.
"""

from dataclasses import dataclass, replace
from typing import Any

Raw = dict[str, Any]

READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on resources of one API group; `names` narrows it to single objects."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rule(self) -> Raw:
        """Return the rule as RBAC writes it."""
        rule: Raw = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule


_EVENTS = Permission("", ("events",), ("create", "patch"))
_WORKLOADS = (
    Permission("", ("replicationcontrollers",), READ),
    Permission("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), READ),
    Permission("batch", ("jobs", "cronjobs"), READ),
    Permission("*", ("*/scale",), ("get",)),
)
# At start, to tell whether the controller that is replaced was of another release.
_DEPLOYMENTS = Permission("apps", ("deployments",), ("list",))
_VPAS = Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), READ)

CLUSTER: dict[str, tuple[Permission, ...]] = {
    "hpa": (
        # Patched are annotations alone: what learned headroom keeps over a restart.
        Permission("autoscaling", ("horizontalpodautoscalers",), (*READ, "patch")),
        Permission("autoscaling", ("horizontalpodautoscalers/status",), ("update", "patch")),
        Permission("*", ("*/scale",), ("get", "update")),
        Permission("", ("pods", "nodes"), READ),
        Permission("apps", ("deployments", "replicasets", "statefulsets"), READ),
        Permission("", ("replicationcontrollers",), READ),
        Permission("metrics.k8s.io", ("pods",), ("get", "list")),
        Permission("custom.metrics.k8s.io", ("*",), ("get", "list")),
        Permission("external.metrics.k8s.io", ("*",), ("get", "list")),
        _EVENTS,
    ),
    "recommender": (
        Permission("", ("pods", "nodes"), READ),
        Permission("", ("events",), ("get", "list", "watch", "create", "patch")),
        Permission("metrics.k8s.io", ("pods",), ("get", "list")),
        Permission("external.metrics.k8s.io", ("*",), ("get", "list")),
        Permission("autoscaling", ("horizontalpodautoscalers",), READ),
        # Patched is one annotation alone: the groups of a scoped VPA where the CRD has no field for them.
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), (*READ, "patch")),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("get", "patch")),
        Permission(
            "autoscaling.k8s.io",
            ("verticalpodautoscalercheckpoints",),
            ("get", "list", "watch", "create", "patch", "delete"),
        ),
        *_WORKLOADS,
    ),
    "updater": (
        Permission("", ("pods", "nodes", "limitranges"), READ),
        Permission("", ("pods",), ("patch",)),
        Permission("", ("pods/eviction",), ("create",)),
        Permission("", ("pods/resize",), ("patch",)),
        Permission("metrics.k8s.io", ("pods",), ("get", "list")),
        _VPAS,
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("get", "patch")),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalercheckpoints",), READ),
        *_WORKLOADS,
        _EVENTS,
    ),
    "admission": (
        Permission("", ("pods", "nodes", "limitranges"), READ),
        Permission("", ("pods",), ("create",)),
        Permission("metrics.k8s.io", ("pods",), ("get", "list")),
        Permission(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            ("get", "list", "create", "update", "patch", "delete"),
        ),
        _VPAS,
        *_WORKLOADS,
        _EVENTS,
    ),
    "slo": (
        Permission("", ("nodes", "pods", "configmaps"), READ),
        Permission("", ("nodes", "nodes/status"), ("patch",)),
        Permission("slo.koordinator.sh", ("nodeslos",), ("get", "list", "watch", "create", "patch", "delete")),
        Permission("slo.koordinator.sh", ("nodemetrics",), ("get", "list", "watch", "create", "patch", "delete")),
        Permission("topology.node.k8s.io", ("noderesourcetopologies",), ("get", "list", "watch", "patch")),
        Permission("scheduling.koordinator.sh", ("devices",), READ),
        _DEPLOYMENTS,
        _EVENTS,
    ),
    "colocation": (
        Permission("", ("namespaces",), READ),
        Permission("scheduling.k8s.io", ("priorityclasses",), READ),
        Permission("config.koordinator.sh", ("clustercolocationprofiles",), READ),
        # For the gate ColocationProfileController: pods that wait for a node.
        Permission("", ("pods",), (*READ, "patch")),
        _DEPLOYMENTS,
        Permission(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
            ("get", "create", "update", "delete"),
        ),
        _EVENTS,
    ),
    "node": (
        Permission("", ("nodes", "pods", "persistentvolumeclaims"), READ),
        Permission("", ("nodes/proxy", "nodes/pods", "nodes/configz", "nodes/stats", "nodes/metrics"), ("get",)),
        Permission("", ("pods/eviction",), ("create",)),
        Permission("slo.koordinator.sh", ("nodeslos", "nodemetrics"), READ),
        Permission("slo.koordinator.sh", ("nodemetrics/status",), ("get", "update", "patch")),
        Permission(
            "topology.node.k8s.io", ("noderesourcetopologies",), ("get", "list", "watch", "create", "update", "patch")
        ),
        Permission("scheduling.koordinator.sh", ("devices",), ("get", "list", "watch", "create", "update", "patch")),
        _EVENTS,
    ),
}
"""Permissions in the whole cluster."""

_LEASE = ("get", "create", "update")


@dataclass(frozen=True, slots=True)
class Local:
    """Permissions in one namespace; without one, where kubetide runs."""

    right: Permission
    namespace: str = ""


LOCAL: dict[str, tuple[Local, ...]] = {
    "hpa": (Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "recommender": (Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "updater": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),
        # The admission controller's lease lies where both run.
        Local(Permission("coordination.k8s.io", ("leases",), ("get",))),
    ),
    "admission": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASE)),
        Local(Permission("", ("secrets",), ("get", "create", "update"))),
    ),
    "slo": (Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "koordinator-system"),),
    "colocation": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASE)),
        Local(Permission("", ("secrets",), ("get", "create", "update"))),
        Local(Permission("", ("configmaps",), READ), "koordinator-system"),
    ),
    "node": (),
}
"""Permissions in single namespaces."""


_OBSERVED = {"updater": (Permission("", ("events",), READ),)}
"""What a dry run reads beyond what the component itself reads: what upstream did, to compare with."""


def read_only(component: str) -> tuple[Permission, ...]:
    """Return what is left of a component's permissions in the whole cluster when it only looks."""
    return (*_reading(CLUSTER[component]), *_OBSERVED.get(component, ()))


def read_only_local(component: str) -> tuple[Local, ...]:
    """Return what is left of a component's permissions in single namespaces: no Secrets, for it serves no webhook."""
    return tuple(
        Local(permission, local.namespace)
        for local in LOCAL[component]
        for permission in _reading((local.right,))
        if "secrets" not in permission.resources
    )


def _reading(permissions: tuple[Permission, ...]) -> list[Permission]:
    kept = [replace(one, verbs=tuple(verb for verb in one.verbs if verb in READ)) for one in permissions]
    return [one for one in kept if one.verbs]
