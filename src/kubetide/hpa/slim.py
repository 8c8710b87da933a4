"""Pods without what autoscaling does not look at: a cluster's worth of them is kept in memory."""

from kubetide.api.objects.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.objects.resources import is_sidecar
from kubetide.hpa.core.pods import has_pod_level_requests


def slim_pod(pod: Pod) -> Pod:
    """Keep labels, owner, node, requests, phase and readiness of a pod."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    # Init containers and overhead count only towards the requests of a pod that is sized as a whole.
    whole = has_pod_level_requests(pod)
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=meta.owner_references,
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            containers=tuple(_slim_container(one) for one in spec.containers or ()),
            init_containers=tuple(
                _slim_container(one) for one in spec.init_containers or () if whole or is_sidecar(one)
            ),
            resources=_only_requests(spec.resources) if whole else None,
            overhead=spec.overhead if whole else None,
        ),
        status=PodStatus(
            phase=status.phase,
            start_time=status.start_time,
            conditions=tuple(one for one in status.conditions or () if one.type == "Ready"),
        ),
    )


def _slim_container(container: Container) -> Container:
    return Container(
        name=container.name,
        restart_policy=container.restart_policy,
        resources=_only_requests(container.resources),
    )


def _only_requests(resources: ResourceRequirements | None) -> ResourceRequirements | None:
    requests = resources.requests if resources is not None else None
    return ResourceRequirements(requests=requests) if requests else None
