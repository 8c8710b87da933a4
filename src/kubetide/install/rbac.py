"""Least privilege, component by component: what each may read and write, and nothing else.

The table is what `kubetide manifests` writes and what `kubetide doctor` asks the API server about. Tests run every
component with these permissions, so that one that is missing here is found here.
"""

from dataclasses import dataclass, replace
from typing import Any

from kubetide.api.objects.sample_frames import STREAM_CA as METRICS_CA
from kubetide.api.objects.sample_frames import STREAM_GROUP, STREAM_RESOURCE, STREAM_VERB

Raw = dict[str, Any]

READ = ("get", "list", "watch")
CACHED = ("list", "watch")
"""What a cache needs: nobody asks for a single object of it."""
METRICS_APIS = (
    "v1beta1.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
)
"""APIServices that may lead to the metrics server."""


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
_VPAS = Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), CACHED)

CLUSTER: dict[str, tuple[Permission, ...]] = {
    "hpa": (
        # Patched are annotations alone: what learned headroom keeps over a restart.
        Permission("autoscaling", ("horizontalpodautoscalers",), (*CACHED, "patch")),
        Permission("autoscaling", ("horizontalpodautoscalers/status",), ("update",)),
        Permission("*", ("*/scale",), ("get", "update")),
        Permission("", ("pods", "nodes"), CACHED),
        Permission("apps", ("deployments", "replicasets", "statefulsets"), READ),
        Permission("", ("replicationcontrollers",), READ),
        # Watched with --hpa-coordinate alone.
        _VPAS,
        # Watched with --hpa-watch-usage alone.
        Permission("metrics.k8s.io", ("pods",), CACHED),
        Permission("custom.metrics.k8s.io", ("*",), ("get", "list")),
        Permission("external.metrics.k8s.io", ("*",), ("get", "list")),
        _EVENTS,
    ),
    "recommender": (
        Permission("", ("pods", "nodes"), CACHED),
        # With --recommendation-ceilings alone.
        Permission("", ("limitranges", "resourcequotas"), CACHED),
        Permission("", ("events",), (*CACHED, "create", "patch")),
        # Signals with --cpu-peaks, --memory-without-page-cache and --throttled-cpu-bump-up-ratio alone.
        Permission("metrics.k8s.io", ("pods", "podsignals"), ("list",)),
        Permission("external.metrics.k8s.io", ("*",), ("get", "list")),
        Permission("autoscaling", ("horizontalpodautoscalers",), CACHED),
        # Patched are annotations alone: groups of a scoped VPA where the CRD has no field for them, learned limits,
        # what is agreed with an HPA.
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), (*READ, "patch")),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("patch",)),
        Permission(
            "autoscaling.k8s.io",
            ("verticalpodautoscalercheckpoints",),
            ("list", "create", "patch", "delete"),
        ),
        *_WORKLOADS,
    ),
    "updater": (
        Permission("", ("pods", "nodes", "limitranges"), CACHED),
        Permission("", ("pods",), ("patch",)),
        Permission("", ("pods/eviction",), ("create",)),
        Permission("", ("pods/resize",), ("patch",)),
        # For --resize-before-oom: which memory runs out, and what quotas leave.
        Permission("metrics.k8s.io", ("podsignals",), ("watch",)),
        Permission("", ("resourcequotas",), ("list",)),
        # For VPAs that are updated by rollouts (kubetide.io/update-by).
        Permission("apps", ("deployments",), ("patch",)),
        Permission("metrics.k8s.io", ("pods",), ("list",)),
        # Read again before a condition is written.
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), READ),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers/status",), ("patch",)),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalercheckpoints",), ("get",)),
        *_WORKLOADS,
        _EVENTS,
    ),
    "admission": (
        Permission("", ("nodes", "limitranges"), CACHED),
        Permission("", ("pods",), ("create",)),
        Permission("metrics.k8s.io", ("pods",), ("list",)),
        Permission(
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            ("get", "create", "update"),
        ),
        _VPAS,
        *_WORKLOADS,
        _EVENTS,
    ),
    "policy": (
        Permission("", ("namespaces", "replicationcontrollers"), CACHED),
        Permission("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), CACHED),
        Permission("batch", ("jobs", "cronjobs"), CACHED),
        Permission("autoscaling", ("horizontalpodautoscalers",), CACHED),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), (*CACHED, "create", "patch", "delete")),
        _EVENTS,
    ),
    "plan": (
        Permission("kubetide.io", ("workloadplans",), READ),
        Permission("kubetide.io", ("workloadplans/status",), ("patch",)),
        Permission("autoscaling", ("horizontalpodautoscalers",), (*READ, "create", "patch")),
        Permission("autoscaling.k8s.io", ("verticalpodautoscalers",), (*READ, "create", "patch")),
        _EVENTS,
    ),
    "slo": (
        Permission("", ("nodes", "pods"), CACHED),
        # Read by the webhook, where that is on.
        Permission("", ("configmaps",), READ),
        Permission("", ("nodes", "nodes/status"), ("patch",)),
        Permission("slo.koordinator.sh", ("nodeslos", "nodemetrics"), (*CACHED, "create", "patch", "delete")),
        Permission("topology.node.k8s.io", ("noderesourcetopologies",), (*CACHED, "patch")),
        Permission("scheduling.koordinator.sh", ("devices",), CACHED),
        _DEPLOYMENTS,
        _EVENTS,
    ),
    "colocation": (
        Permission("", ("namespaces",), READ),
        Permission("scheduling.k8s.io", ("priorityclasses",), READ),
        Permission("config.koordinator.sh", ("clustercolocationprofiles",), CACHED),
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
        Permission("", ("nodes",), READ),
        Permission("", ("pods", "persistentvolumeclaims"), CACHED),
        # Pods and configuration from the kubelet; nodes/proxy for those before 1.33, which do not know the other two.
        Permission("", ("nodes/proxy", "nodes/pods", "nodes/configz"), ("get",)),
        Permission("", ("pods/eviction",), ("create",)),
        Permission("slo.koordinator.sh", ("nodeslos",), CACHED),
        Permission("slo.koordinator.sh", ("nodemetrics",), READ),
        Permission("slo.koordinator.sh", ("nodemetrics/status",), ("update",)),
        Permission("topology.node.k8s.io", ("noderesourcetopologies",), (*READ, "create", "update")),
        Permission("scheduling.koordinator.sh", ("devices",), ("get", "create", "update")),
        # To send samples to the metrics server.
        Permission(STREAM_GROUP, (STREAM_RESOURCE,), (STREAM_VERB,)),
        _EVENTS,
    ),
    # What metrics-server has, and the CA of its own APIServices.
    "metrics": (
        Permission("", ("nodes/metrics",), ("get",)),
        Permission("", ("pods", "nodes"), CACHED),
        Permission("authentication.k8s.io", ("tokenreviews",), ("create",)),
        Permission("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
        Permission("apiregistration.k8s.io", ("apiservices",), ("get", "patch"), METRICS_APIS),
    ),
}
"""Permissions in the whole cluster."""

_LEASE = ("get", "create", "update")
_LEASES_OF_MEMBERS = (*_LEASE, "list", "delete")
"""Replicas that share the work read each other's leases, and tidy up those of replicas that are gone."""


@dataclass(frozen=True, slots=True)
class Local:
    """Permissions in one namespace; without one, where kubetide runs."""

    right: Permission
    namespace: str = ""


LOCAL: dict[str, tuple[Local, ...]] = {
    "hpa": (Local(Permission("coordination.k8s.io", ("leases",), _LEASES_OF_MEMBERS), "kube-system"),),
    "recommender": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASES_OF_MEMBERS), "kube-system"),
        # What fleets of containers with learned sizes have learned together.
        Local(Permission("", ("configmaps",), ("create",)), "kube-system"),
        Local(Permission("", ("configmaps",), ("get", "patch"), ("vpa-recommender-lease-learned",)), "kube-system"),
    ),
    "updater": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASES_OF_MEMBERS), "kube-system"),
        # The admission controller's lease lies where both run.
        Local(Permission("coordination.k8s.io", ("leases",), ("get",))),
    ),
    "admission": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASE)),
        Local(Permission("", ("secrets",), ("create",))),
        Local(Permission("", ("secrets",), ("get", "update"), ("vpa-tls-certs",))),
    ),
    "policy": (Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "plan": (Local(Permission("coordination.k8s.io", ("leases",), _LEASE), "kube-system"),),
    "slo": (Local(Permission("coordination.k8s.io", ("leases",), _LEASES_OF_MEMBERS), "koordinator-system"),),
    "colocation": (
        Local(Permission("coordination.k8s.io", ("leases",), _LEASE)),
        Local(Permission("", ("secrets",), ("create",))),
        Local(Permission("", ("secrets",), ("get", "update"), ("kubetide-colocation-certs",))),
        Local(Permission("", ("configmaps",), CACHED), "koordinator-system"),
    ),
    "node": (
        # Where the metrics server is, and the CA of its certificate.
        Local(Permission("discovery.k8s.io", ("endpointslices",), ("list",))),
        Local(Permission("", ("configmaps",), ("get",), (METRICS_CA,))),
    ),
    "metrics": (
        Local(Permission("", ("configmaps",), READ, ("extension-apiserver-authentication",)), "kube-system"),
        Local(Permission("", ("configmaps",), READ, ("kubetide-metrics-config",))),
        Local(Permission("", ("secrets",), ("create",))),
        Local(Permission("", ("secrets",), ("get", "update"), ("kubetide-metrics-certs",))),
        Local(Permission("", ("configmaps",), ("create",))),
        Local(Permission("", ("configmaps",), ("get", "update"), (METRICS_CA,))),
    ),
}
"""Permissions in single namespaces."""


BESIDE_UPSTREAM: dict[str, tuple[Local, ...]] = {
    component: (Local(_DEPLOYMENTS, "kube-system"),) for component in ("recommender", "updater", "admission")
}
"""What a component that is kept to one namespace still reads where upstream's Deployments are."""

_WITHOUT_NAMESPACE = {"nodes", "namespaces", "priorityclasses", "mutatingwebhookconfigurations"}


def narrowed(permissions: tuple[Permission, ...]) -> tuple[tuple[Permission, ...], tuple[Permission, ...]]:
    """Split permissions: what has no namespace and is needed everywhere, and what one namespace is enough for."""
    everywhere: list[Permission] = []
    inside: list[Permission] = []
    for each in permissions:
        for kept, chosen in (
            (everywhere, tuple(name for name in each.resources if name in _WITHOUT_NAMESPACE)),
            (inside, tuple(name for name in each.resources if name not in _WITHOUT_NAMESPACE)),
        ):
            if chosen:
                kept.append(replace(each, resources=chosen))
    return tuple(everywhere), tuple(inside)


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
    # What would be changed is read instead, to say what the change would be.
    changed = [
        Permission(one.group, names, ("get",))
        for one in permissions
        if {"patch", "update"} & set(one.verbs) and "get" not in one.verbs
        if (names := tuple(name for name in one.resources if "/" not in name and name != "events"))
    ]
    return [one for one in (*kept, *changed) if one.verbs]
