"""The table of built-in resources: names, scope, subresources, and which of their versions is stored."""

from kubetide.embedded.apiserver.resources import CREATE_ONLY, READ_WRITE, ApiResource, Convert
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey

# Events have two API groups and one storage: core/v1 is stored, events.k8s.io/v1 is a view of it.
_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)


def event_from_core(obj: Raw) -> Raw:
    """Return the events.k8s.io/v1 view of a core event."""
    view = dict(obj, apiVersion="events.k8s.io/v1")
    for core, modern in _RENAMED:
        if core in view:
            view[modern] = view.pop(core)
    return view


def event_to_core(obj: Raw) -> Raw:
    """Return the core event that an events.k8s.io/v1 object stands for."""
    core_view = dict(obj, apiVersion="v1")
    for core, modern in _RENAMED:
        if modern in core_view:
            core_view[core] = core_view.pop(modern)
    return core_view


def _resource(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    sub: tuple[str, ...] = (),
    generation: bool = False,
    verbs: tuple[str, ...] = READ_WRITE,
    storage: tuple[str, str] | None = None,
    storage_version: str | None = None,
    to_storage: Convert | None = None,
    from_storage: Convert | None = None,
) -> ApiResource:
    return ApiResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=short,
        categories=categories,
        verbs=verbs,
        subresources=sub,
        storage=ResourceKey(*storage) if storage else ResourceKey(group, plural),
        storage_version=storage_version or version,
        generation=generation,
        to_storage=to_storage,
        from_storage=from_storage,
    )


_ALL = ("all",)
_WORKLOAD = ("status", "scale")

_CORE = [
    _resource("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), sub=("status", "finalize")),
    _resource("", "v1", "nodes", "Node", namespaced=False, short=("no",), sub=("status", "proxy")),
    _resource(
        "",
        "v1",
        "pods",
        "Pod",
        short=("po",),
        categories=_ALL,
        sub=("status", "eviction", "binding", "resize"),
        generation=True,
    ),
    _resource("", "v1", "bindings", "Binding", verbs=CREATE_ONLY),
    _resource("", "v1", "services", "Service", short=("svc",), categories=_ALL, sub=("status",)),
    _resource("", "v1", "endpoints", "Endpoints", short=("ep",)),
    _resource("", "v1", "secrets", "Secret"),
    _resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    _resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), sub=("token",)),
    _resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), sub=("status",)),
    _resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), sub=("status",)),
    _resource("", "v1", "limitranges", "LimitRange", short=("limits",)),
    _resource("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), sub=("status",)),
    _resource("", "v1", "podtemplates", "PodTemplate"),
    _resource("", "v1", "events", "Event", short=("ev",)),
    _resource(
        "",
        "v1",
        "replicationcontrollers",
        "ReplicationController",
        short=("rc",),
        categories=_ALL,
        sub=_WORKLOAD,
        generation=True,
    ),
]

_WORKLOADS = [
    _resource(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        short=("deploy",),
        categories=_ALL,
        sub=_WORKLOAD,
        generation=True,
    ),
    _resource(
        "apps", "v1", "replicasets", "ReplicaSet", short=("rs",), categories=_ALL, sub=_WORKLOAD, generation=True
    ),
    _resource(
        "apps", "v1", "statefulsets", "StatefulSet", short=("sts",), categories=_ALL, sub=_WORKLOAD, generation=True
    ),
    _resource(
        "apps", "v1", "daemonsets", "DaemonSet", short=("ds",), categories=_ALL, sub=("status",), generation=True
    ),
    _resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
    _resource("batch", "v1", "jobs", "Job", categories=_ALL, sub=("status",), generation=True),
    _resource("batch", "v1", "cronjobs", "CronJob", short=("cj",), categories=_ALL, sub=("status",), generation=True),
]

_POLICY = [
    _resource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), sub=("status",), generation=True
    ),
    _resource("coordination.k8s.io", "v1", "leases", "Lease"),
    _resource(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        short=("ev",),
        storage=("", "events"),
        storage_version="v1",
        to_storage=event_to_core,
        from_storage=event_from_core,
    ),
    _resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    _resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    _resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    _resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",)),
    _resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
]

_NETWORK_AND_STORAGE = [
    _resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    _resource("networking.k8s.io", "v1", "ingresses", "Ingress", short=("ing",), sub=("status",), generation=True),
    _resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False, generation=True),
    _resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",), generation=True),
    _resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short=("sc",)),
    _resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
]

_MACHINERY = [
    _resource(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
        generation=True,
    ),
    _resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
        generation=True,
    ),
    _resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short=("crd", "crds"),
        sub=("status",),
        generation=True,
    ),
    _resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False, sub=("status",)),
    _resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, verbs=CREATE_ONLY),
    _resource(
        "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs=CREATE_ONLY
    ),
    _resource(
        "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs=CREATE_ONLY
    ),
    _resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        verbs=CREATE_ONLY,
    ),
    _resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        namespaced=False,
        verbs=CREATE_ONLY,
    ),
    _resource("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=CREATE_ONLY),
]


def builtin_resources(hpa_to_v2: Convert, hpa_to_v1: Convert) -> list[ApiResource]:
    """Return the table. HPAs are stored as v2; the two converters serve the v1 view."""
    hpa_storage = ("autoscaling", "horizontalpodautoscalers")
    hpas = [
        _resource(
            "autoscaling",
            version,
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            short=("hpa",),
            categories=_ALL,
            sub=("status",),
            storage=hpa_storage,
            storage_version="v2",
            to_storage=hpa_to_v2 if version == "v1" else None,
            from_storage=hpa_to_v1 if version == "v1" else None,
        )
        for version in ("v2", "v1")
    ]
    return [*_CORE, *_WORKLOADS, *hpas, *_POLICY, *_NETWORK_AND_STORAGE, *_MACHINERY]


NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def namespace_object(name: str) -> Raw:
    """Return one of the namespaces that are there from the start."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name},
    }
