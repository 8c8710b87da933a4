"""Where things are on this node: the roots, the cgroup version, the naming of pod cgroups.

The agent runs on the host or in a container with the host mounted under other roots; nothing else in the agent
builds an absolute path.
"""

from dataclasses import dataclass, field

from kubetide.api.qos.cgroups import CgroupPaths
from kubetide.errors import InvalidInput
from kubetide.node.core.files import CgroupFile, Root, SystemFile


class EscapesRoot(InvalidInput):
    """A name would lead out of the directory it belongs to."""


def inside(root: str, *parts: str) -> str:
    """Join below `root`; raise EscapesRoot if the result would lie outside."""
    names: list[str] = []
    for part in parts:
        for name in part.split("/"):
            if name == ".." or "\0" in name:
                raise EscapesRoot(f"{part!r} leads out of {root}")
            if name not in ("", "."):
                names.append(name)
    return "/".join([root.rstrip("/"), *names])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The roots of a node and how its cgroups are named."""

    version: int = 1
    paths: CgroupPaths = field(default_factory=CgroupPaths)
    cgroup_root: str = "/sys/fs/cgroup"
    sys_root: str = "/sys"
    sys_fs_root: str = "/sys/fs"
    proc_root: str = "/proc"
    var_run_root: str = "/var/run"
    run_root: str = "/run"
    kubelet_root: str = "/var/lib/kubelet"

    def cgroup_file(self, file: CgroupFile, directory: str) -> str:
        """Return the absolute path of a cgroup file; raise NotOnThisVersion or EscapesRoot."""
        return inside(self.cgroup_root, file.relative(self.version, directory))

    def cgroup_dir(self, controller: str, directory: str) -> str:
        """Return the absolute path of a cgroup directory of a v1 controller, or of the unified tree."""
        return inside(self.cgroup_root, controller if self.version == 1 else "", directory)

    def watched_dir(self, kube_qos: str) -> str:
        """Return the directory in which pod directories of a QoS class appear."""
        return self.cgroup_dir("cpu", self.paths.tier(kube_qos))

    def system_file(self, file: SystemFile) -> str:
        """Return the absolute path of a kernel setting."""
        roots = {Root.PROC: self.proc_root, Root.SYS: self.sys_root, Root.SYS_FS: self.sys_fs_root}
        return inside(roots[file.root], file.path)

    def proc(self, *parts: str) -> str:
        """Return a path below /proc."""
        return inside(self.proc_root, *parts)

    def sys(self, *parts: str) -> str:
        """Return a path below /sys."""
        return inside(self.sys_root, *parts)
