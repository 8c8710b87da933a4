"""What each component of kubetide may write, and which objects go with which."""

ANNOTATIONS = ("metadata.annotations.",)
OWN: dict[str, dict[str, tuple[str, ...]]] = {
    "hpa": {"*/scale": ("",), "horizontalpodautoscalers/status": ("",), "horizontalpodautoscalers": ANNOTATIONS},
    "recommender": {
        "verticalpodautoscalers/status": ("status", "metadata.resourceVersion"),
        "verticalpodautoscalers": ANNOTATIONS,
        "verticalpodautoscalercheckpoints": ("status", "metadata.annotations"),
        "configmaps": ("data",),
    },
    "updater": {
        "pods/eviction": ("",),
        "pods/resize": ("spec.", "metadata.uid"),
        "pods": ANNOTATIONS,
        "verticalpodautoscalers/status": ("status.conditions", "metadata.resourceVersion"),
        "deployments": ("spec.template.metadata.annotations.",),
    },
    "admission": {"mutatingwebhookconfigurations": ("",), "verticalpodautoscalers": ANNOTATIONS, "secrets": ("",)},
    "policy": {"verticalpodautoscalers": ("",)},
    "plan": {"workloadplans/status": ("",), "horizontalpodautoscalers": ("",), "verticalpodautoscalers": ("",)},
    "slo": {
        "nodes/status": ("status.allocatable.", "status.capacity."),
        "nodes": ("metadata.annotations.", "metadata.labels."),
        "nodeslos": ("spec", "metadata.resourceVersion"),
        "nodemetrics": ("spec",),
        "noderesourcetopologies": ("zones", "metadata.annotations", "metadata.resourceVersion"),
    },
    "node": {
        "nodemetrics/status": ("",),
        "noderesourcetopologies": ("",),
        "devices": ("",),
        "pods/eviction": ("",),
        "nodes": ("metadata.annotations.", "metadata.labels."),
    },
}
"""What each component may write: resource to the fields of patches."""
SHARED = ("leases", "events")
OWNERS = {"nodeslos": "nodes", "nodemetrics": "nodes", "noderesourcetopologies": "nodes", "devices": "nodes"}
"""Objects that go with another one of the same name."""
