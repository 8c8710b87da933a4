"""Pods without what autoscaling does not look at: a cluster's worth of them is kept in memory."""

from kubetide.api.objects.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kubetide.api.objects.meta import ObjectMeta


def slim_pod(pod: Pod) -> Pod:
    """Keep labels, owner, node, requests, phase and readiness of a pod."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
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
                _slim_container(one) for one in spec.init_containers or () if one.restart_policy == "Always"
            ),
        ),
        status=PodStatus(
            phase=status.phase,
            start_time=status.start_time,
            conditions=tuple(one for one in status.conditions or () if one.type == "Ready"),
        ),
    )


def _slim_container(container: Container) -> Container:
    requests = container.resources.requests if container.resources is not None else None
    return Container(
        name=container.name,
        restart_policy=container.restart_policy,
        resources=ResourceRequirements(requests=requests) if requests else None,
    )
