"""Which type lives at which path: group, version, plural and struct of every resource kubetide speaks.

PODS.path(namespace="shop", name="web-1", subresource="eviction")
    -> /api/v1/namespaces/shop/pods/web-1/eviction
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar
from urllib.parse import quote

from kubetide.api.objects import apps, core, metrics
from kubetide.api.objects.core import Lease
from kubetide.api.objects.events import RecordedEvent
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.slo import (
    ClusterColocationProfile,
    Device,
    NodeMetric,
    NodeResourceTopology,
    NodeSLO,
    PriorityClass,
)
from kubetide.api.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One resource of the API and the struct that reads it."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, an object or a subresource. Names are escaped."""
        parts = [self.base]
        if namespace and self.namespaced:
            parts += ["namespaces", escaped(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(escaped(name, ":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@lru_cache(maxsize=8192)
def escaped(segment: str, safe: str = "") -> str:
    """Return a segment of a path escaped; most requests are about the same few objects again and again."""
    return quote(segment, safe=safe)


def untyped(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource[TypedObject]:
    """Return a resource known by name only, such as a custom resource: just its metadata is read."""
    return Resource(group, version, plural, kind, TypedObject, namespaced)


PODS = Resource("", "v1", "pods", "Pod", core.Pod)
NODES = Resource("", "v1", "nodes", "Node", core.Node, namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", core.Namespace, namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", core.ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", core.Secret)
SERVICES = Resource("", "v1", "services", "Service", core.Service)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", core.LimitRange)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", core.ResourceQuota)
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", core.PersistentVolumeClaim)
EVENTS = Resource("", "v1", "events", "Event", RecordedEvent)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", apps.ReplicationController
)

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", apps.Deployment)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", apps.ReplicaSet)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", apps.StatefulSet)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", apps.DaemonSet)
JOBS = Resource("batch", "v1", "jobs", "Job", apps.Job)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", apps.CronJob)
PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", apps.PodDisruptionBudget)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)

HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", HorizontalPodAutoscaler)
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", VerticalPodAutoscaler)
VPA_CHECKPOINTS = Resource(
    "autoscaling.k8s.io",
    "v1",
    "verticalpodautoscalercheckpoints",
    "VerticalPodAutoscalerCheckpoint",
    VerticalPodAutoscalerCheckpoint,
)

NODE_SLOS = Resource("slo.koordinator.sh", "v1alpha1", "nodeslos", "NodeSLO", NodeSLO, namespaced=False)
NODE_METRICS = Resource("slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", NodeMetric, namespaced=False)
DEVICES = Resource("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", Device, namespaced=False)
NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io",
    "v1alpha1",
    "noderesourcetopologies",
    "NodeResourceTopology",
    NodeResourceTopology,
    namespaced=False,
)

COLOCATION_PROFILES = Resource(
    "config.koordinator.sh",
    "v1alpha1",
    "clustercolocationprofiles",
    "ClusterColocationProfile",
    ClusterColocationProfile,
    namespaced=False,
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", PriorityClass, namespaced=False
)

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", metrics.PodMetrics)
POD_SIGNALS = Resource("metrics.k8s.io", "v1beta1", "podsignals", "PodSignals", metrics.PodSignals)

MUTATING_WEBHOOKS = untyped(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = untyped(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CRDS = untyped("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
API_SERVICES = untyped("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
