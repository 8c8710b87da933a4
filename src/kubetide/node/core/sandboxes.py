"""Which cgroup below a pod is its sandbox: the one directory that belongs to no known container.

Nobody reports the sandbox's id to the agent. While no container of the pod has a status, or when more than one
unknown directory is there (an old container not yet removed), the answer is "not known yet". CRI-O keeps processes of
its own beside the containers, in scopes that are no sandbox.
"""

from collections.abc import Iterable

from kubetide.api.qos.cgroups import CgroupPaths, ContainerIdError, join, split_container_id
from kubetide.node.core.snapshot import PodState


def sandbox_among(pod: PodState, names: Iterable[str]) -> str | None:
    """Return the directory of the pod's sandbox, given the names of all cgroups below the pod."""
    known = {one.directory for one in (*pod.containers, *pod.init_containers) if one.directory}
    if not known:
        return None
    others = [path for name in names if not _is_crio_scope(name) and (path := join(pod.directory, name)) not in known]
    return others[0] if len(others) == 1 else None


def _is_crio_scope(name: str) -> bool:
    return name.startswith("crio-") and name.endswith(".scope")


def sandbox_id(paths: CgroupPaths, pod: PodState, directory: str) -> str:
    """Return the id of a sandbox in the spelling of the pod's containers, empty when its name says nothing."""
    hash_ = paths.container_hash(directory.rpartition("/")[2])
    ids = [container.id for container in pod.containers if container.id]
    if hash_ is None or not ids:
        return ""
    try:
        runtime, _ = split_container_id(ids[-1])
    except ContainerIdError:
        return ""
    return f"{runtime}://{hash_}"
