"""Native sidecars sized like containers (gate `NativeSidecar`, proposal AEP-8905).

A native sidecar is an init container with restartPolicy `Always`: it runs as long as the pod. With the gate on, every
component looks at pods through `with_sidecars`, so that nothing else has to know the difference; only a patch asks
`container_path` where a container really stands. Names are unique among all containers of a pod.
"""

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.objects.resources import is_sidecar


def with_sidecars(pod: Pod) -> Pod:
    """Return the pod with its native sidecars, and what the kubelet reports of them, behind its containers."""
    sidecars = tuple(container for container in pod.spec.init_containers or () if is_sidecar(container))
    if not sidecars:
        return pod
    names = {container.name for container in sidecars}
    running = tuple(status for status in pod.status.init_container_statuses or () if status.name in names)
    spec = msgspec.structs.replace(pod.spec, containers=(*(pod.spec.containers or ()), *sidecars))
    status = msgspec.structs.replace(pod.status, container_statuses=(*(pod.status.container_statuses or ()), *running))
    return msgspec.structs.replace(pod, spec=spec, status=status)


def without_sidecars(pod: Pod) -> Pod:
    """Return a pod in which what `with_sidecars` put behind the containers is no init container any more."""
    names = {container.name for container in pod.spec.containers or ()}
    left = tuple(container for container in pod.spec.init_containers or () if container.name not in names)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=left or None))


def as_written(pod: Pod) -> Pod:
    """Return a pod without what `with_sidecars` put behind its containers: sums over all of it count nothing twice."""
    names = {container.name for container in pod.spec.init_containers or () if is_sidecar(container)}
    if not names:
        return pod
    own = tuple(container for container in pod.spec.containers or () if container.name not in names)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=own))


def container_path(pod: Pod, index: int) -> str:
    """Return the JSON pointer to a container of the pod as it was written."""
    name = (pod.spec.containers or ())[index].name
    for place, container in enumerate(pod.spec.init_containers or ()):
        if container.name == name and is_sidecar(container):
            return f"/spec/initContainers/{place}"
    return f"/spec/containers/{index}"
