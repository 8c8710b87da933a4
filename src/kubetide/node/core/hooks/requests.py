"""Requests built from what the agent knows of a pod, and the kernel writes that answer them.

The reconciler knows more than the runtime does: the values of the pod's own spec, and batch resources from the spec
itself. What it writes and leaves to others is the same for all: a pod's cgroup belongs to the agent; an empty cpuset
is never written, because the kernel would refuse it.
"""

from collections.abc import Iterable

from kubetide.api.qos.cgroups import CgroupPaths
from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.files import CgroupFile
from kubetide.node.core.hooks.batch_resource import batch_from_annotation, batch_from_spec, batch_of
from kubetide.node.core.hooks.context import (
    BatchResources,
    ContainerRequest,
    HookResponse,
    HostAppRequest,
    PodRequest,
    container_origin,
    pod_origin,
)
from kubetide.node.core.plan import Subject, Target, Write
from kubetide.node.core.snapshot import ContainerState, PodState, host_application_directory

REASON = "runtime-hooks"


def pod_request(pod: PodState) -> PodRequest:
    """Return the request of a pod that the agent knows."""
    meta = pod.pod.metadata
    batch = batch_from_spec(pod.pod)
    if batch is None:
        try:
            batch = batch_from_annotation(meta.annotations)
        except InvalidInput:
            batch = None
    return PodRequest(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        cgroup_parent=pod.directory,
        resources=pod_origin(pod.pod),
        batch=batch,
    )


def container_request(request: PodRequest, container: ContainerState) -> ContainerRequest:
    """Return the request of a container that the agent knows."""
    return ContainerRequest(
        pod=request,
        name=container.name,
        container_id=container.id,
        cgroup_parent=container.directory,
        env={variable.name: variable.value for variable in container.spec.env or ()},
        resources=container_origin(container.spec),
        batch=_batch(request, container),
    )


def _batch(request: PodRequest, container: ContainerState) -> BatchResources | None:
    """Return the batch resources of a container; an init container is no part of what its pod sums up."""
    found = (request.batch or {}).get(container.name)
    own = batch_of(container.spec.resources)
    return own if found is None and own != BatchResources() else found


def sandbox_request(request: PodRequest, container_id: str, directory: str) -> ContainerRequest:
    """Return the request of a pod's sandbox, which has no spec of its own."""
    return ContainerRequest(pod=request, container_id=container_id, sandbox=True, cgroup_parent=directory)


def host_app_request(app: HostApplication, paths: CgroupPaths) -> HostAppRequest:
    """Return the request of a host application."""
    return HostAppRequest(name=app.name, qos=app.qos, cgroup_parent=host_application_directory(app, paths))


def pod_writes(request: PodRequest, response: HookResponse) -> list[Write]:
    """Return the writes for a pod's cgroup."""
    subject = Subject(type="pod", namespace=request.namespace, name=request.name)
    values = (
        (files.CPU_BVT, response.cpu_bvt),
        (files.CPU_IDLE, response.cpu_idle),
        (files.CPU_SHARES, response.cpu_shares),
        (files.CPU_QUOTA, response.cfs_quota),
        (files.MEMORY_LIMIT, response.memory_limit),
    )
    return _writes(values, request.cgroup_parent, Target.POD, subject)


def container_writes(request: ContainerRequest, response: HookResponse) -> list[Write]:
    """Return the writes for a container's cgroup; none while its directory is not known."""
    if not request.cgroup_parent:
        return []
    name = request.name or "sandbox"
    subject = Subject(type="container", namespace=request.pod.namespace, name=request.pod.name, container=name)
    values = (
        (files.CPU_SHARES, response.cpu_shares),
        (files.CPUSET, response.cpuset or None),
        (files.CPU_QUOTA, response.cfs_quota),
        (files.MEMORY_LIMIT, response.memory_limit),
    )
    return _writes(values, request.cgroup_parent, Target.CONTAINER, subject)


def tier_writes(directory: str, response: HookResponse) -> list[Write]:
    """Return the writes for a QoS directory."""
    values = ((files.CPU_BVT, response.cpu_bvt), (files.CPU_IDLE, response.cpu_idle))
    return _writes(values, directory, Target.TIER, Subject(type="group", name=directory))


def host_app_writes(request: HostAppRequest, response: HookResponse) -> list[Write]:
    """Return the writes for a host application."""
    values = ((files.CPUSET, response.cpuset or None), (files.CPU_BVT, response.cpu_bvt))
    return _writes(values, request.cgroup_parent, Target.HOST_APPLICATION, Subject(type="group", name=request.name))


def _writes(
    values: Iterable[tuple[CgroupFile, int | str | None]], directory: str, target: Target, subject: Subject
) -> list[Write]:
    return [
        Write(file=file, value=str(value), directory=directory, target=target, reason=REASON, subject=subject)
        for file, value in values
        if value is not None
    ]
