"""Where Kubernetes puts a pod in the cgroup tree: directories by QoS class, pod and container, and the way back.

All directories are relative to the root of a controller (v1) or of the unified tree (v2), without a slash at either
end. Two drivers name them:

    level          systemd                                          cgroupfs
    kube root      kubepods.slice                                   kubepods
    tier           kubepods.slice/kubepods-burstable.slice          kubepods/burstable
    pod            <tier>/kubepods-burstable-pod<uid_>.slice        <tier>/pod<uid>
    container      <pod>/cri-containerd-<hash>.scope                <pod>/<hash>

`uid_` is the uid with dashes turned into underscores, because a dash means nesting to systemd. Guaranteed pods live
directly in the kube root. A prefix (the kubelet's `--cgroup-root`) puts the kube root under another cgroup, and with
systemd it also becomes the first part of every slice name.

The functions are total: an unknown QoS class or an empty host application yields the kube root or the root itself.
Such a place must never be written; `is_shared` finds it, and the executor refuses.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from kubetide.errors import InvalidInput


class CgroupDriver(StrEnum):
    """Who makes cgroups on a node."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class ContainerIdError(InvalidInput):
    """A container id has no runtime prefix, or one that is not known."""


class ContainerName(NamedTuple):
    """The runtime of a container and the name of its cgroup directory."""

    runtime: str
    directory: str


GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"
KUBE_QOS_CLASSES = (GUARANTEED, BURSTABLE, BEST_EFFORT)

_SCOPES = {"docker": "docker", "containerd": "cri-containerd", "pouch": "pouch", "cri-o": "crio"}
_NOT_CONTAINERS = ("crio-conmon-",)
_TIERS = {BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}

HOST_LATENCY_SENSITIVE = "host-latency-sensitive"
HOST_BEST_EFFORT = "host-best-effort"
_HOST_PARENTS = {
    "LSE": HOST_LATENCY_SENSITIVE,
    "LSR": HOST_LATENCY_SENSITIVE,
    "LS": HOST_LATENCY_SENSITIVE,
    "BE": HOST_BEST_EFFORT,
}


@lru_cache(maxsize=8192)
def join(*parts: str) -> str:
    """Join path elements, leaving out empty ones, and clean the result; nothing gives empty text."""
    joined = "/".join(part for part in parts if part)
    if not joined:
        return ""
    cleaned = posixpath.normpath(joined)
    return "/" + cleaned.lstrip("/") if cleaned.startswith("//") else cleaned


def split_container_id(container_id: str) -> tuple[str, str]:
    """Split `<runtime>://<hash>`; raise ContainerIdError for another shape or an unknown runtime."""
    runtime, separator, hash_ = container_id.partition("://")
    if not separator:
        raise ContainerIdError(f"container id {container_id!r} has no runtime prefix")
    if runtime not in _SCOPES:
        raise ContainerIdError(f"container id {container_id!r} names an unknown runtime {runtime!r}")
    return runtime, hash_


def kube_qos_of_path(path: str) -> str:
    """Guess the Kubernetes QoS class from a cgroup path."""
    if "besteffort" in path:
        return BEST_EFFORT
    return BURSTABLE if "burstable" in path else GUARANTEED


def hook_container_id(annotations: Iterable[str] | None, container_uid: str, default_runtime: str) -> str:
    """Return the full container id for a hook that only knows the hash."""
    runtime = "docker" if "io.kubernetes.docker.type" in (annotations or ()) else default_runtime
    return f"{runtime}://{container_uid}"


@dataclass(frozen=True, slots=True)
class CgroupPaths:
    """The naming rules of one node: its driver and the cgroup that its kube root lies under."""

    driver: CgroupDriver = CgroupDriver.SYSTEMD
    prefix: str = ""

    def _prefix_parts(self) -> list[str]:
        return [part for part in self.prefix.split("/") if part]

    def _slices(self, parts: list[str]) -> str:
        names = [part.removesuffix(".slice").replace("-", "_") for part in parts]
        return "/".join("-".join(names[: count + 1]) + ".slice" for count in range(len(names)))

    def full_parent(self, parent: str) -> str:
        """Return the path of a cgroup parent as a runtime names it: a systemd slice alone stands for all above it."""
        if self.driver is not CgroupDriver.SYSTEMD or "/" in parent or not parent.endswith(".slice"):
            return parent
        names = parent.removesuffix(".slice").split("-")
        return "/" + "/".join("-".join(names[: count + 1]) + ".slice" for count in range(len(names)))

    @property
    def _slice_stem(self) -> str:
        names = [part.removesuffix(".slice").replace("-", "_") for part in self._prefix_parts()]
        return "-".join([*names, "kubepods"])

    @property
    def kube_root(self) -> str:
        """The cgroup of all pods, which is also the tier of the Guaranteed ones."""
        parts = [*self._prefix_parts(), "kubepods"]
        return self._slices(parts) if self.driver is CgroupDriver.SYSTEMD else "/".join(parts)

    def tier(self, kube_qos: str) -> str:
        """Return the directory of a Kubernetes QoS class; an unknown class counts as Guaranteed."""
        tier = _TIERS.get(kube_qos)
        if tier is None:
            return self.kube_root
        name = f"{self._slice_stem}-{tier}.slice" if self.driver is CgroupDriver.SYSTEMD else tier
        return f"{self.kube_root}/{name}"

    def tiers(self) -> tuple[str, ...]:
        """Return the directories of the three QoS classes, the kube root first."""
        return tuple(self.tier(kube_qos) for kube_qos in KUBE_QOS_CLASSES)

    def pod(self, kube_qos: str, uid: str) -> str:
        """Return the directory of a pod."""
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{self.tier(kube_qos)}/pod{uid}"
        if kube_qos not in KUBE_QOS_CLASSES:
            return self.kube_root
        tier = _TIERS.get(kube_qos)
        stem = self._slice_stem if tier is None else f"{self._slice_stem}-{tier}"
        return f"{self.tier(kube_qos)}/{stem}-pod{uid.replace('-', '_')}.slice"

    def container_name(self, container_id: str) -> ContainerName:
        """Return runtime and directory name of a container; raise ContainerIdError."""
        runtime, hash_ = split_container_id(container_id)
        if self.driver is CgroupDriver.CGROUPFS:
            return ContainerName(runtime, hash_)
        return ContainerName(runtime, f"{_SCOPES[runtime]}-{hash_}.scope")

    def container(self, pod_directory: str, container_id: str) -> str:
        """Return the directory of a container inside its pod's; raise ContainerIdError."""
        return join(pod_directory, self.container_name(container_id).directory)

    def pod_id(self, name: str) -> str | None:
        """Return the uid of the pod whose directory has this name, or None."""
        if self.driver is CgroupDriver.CGROUPFS:
            return name.removeprefix("pod") if name.startswith("pod") else None
        stem = self._slice_stem
        for prefix in (f"{stem}-besteffort-pod", f"{stem}-burstable-pod", f"{stem}-pod"):
            if name.startswith(prefix) and name.endswith(".slice"):
                return name.removeprefix(prefix).removesuffix(".slice").replace("_", "-")
        return None

    def container_hash(self, name: str) -> str | None:
        """Return the hash of the container whose directory has this name, or None."""
        if self.driver is CgroupDriver.CGROUPFS:
            return name
        if not name.endswith(".scope") or name.startswith(_NOT_CONTAINERS):
            return None
        for scope in _SCOPES.values():
            if name.startswith(f"{scope}-"):
                return name.removeprefix(f"{scope}-").removesuffix(".scope")
        return None

    def host_application(
        self,
        name: str,
        qos: str = "",
        *,
        cgroup_path: tuple[str, str, str] | None = None,
    ) -> str:
        """Return the directory of a host application; `cgroup_path` is (base, parent directory, relative path)."""
        if cgroup_path is None:
            return join(_HOST_PARENTS.get(qos, ""), name)
        base, parent, relative = cgroup_path
        bases = {
            "Kubepods": self.kube_root,
            "KubepodsBurstable": self.tier(BURSTABLE),
            "KubepodsBesteffort": self.tier(BEST_EFFORT),
        }
        return join(bases.get(base, ""), parent, relative)

    def is_shared(self, directory: str) -> bool:
        """Return whether a directory belongs to no single pod, container or application, or leaves the root."""
        if ".." in directory.split("/") or "\0" in directory:
            return True
        cleaned = join(directory).strip("/")
        if cleaned in ("", "."):
            return True
        return cleaned in _shared_directories(self)


@lru_cache(maxsize=64)
def _shared_directories(paths: CgroupPaths) -> frozenset[str]:
    """Return the tiers and all that lies above them; every write asks, the answer never changes."""
    shared = set(paths.tiers())
    parent = posixpath.dirname(paths.kube_root)
    while parent:
        shared.add(parent)
        parent = posixpath.dirname(parent)
    return frozenset(shared)
