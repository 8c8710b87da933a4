"""The machine under a simulated node, as the node agent sees it: files, directories, a few commands.

Everything is computed from the kernel model when it is read, and counters are brought up to the present first. What
is written goes into the model, so that a written quota really slows the simulated pod. Errors are the kernel's.
"""

import errno
import posixpath
from collections import deque
from collections.abc import Callable, Sequence

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.embedded.sim.node.cgroupfs import CgroupFiles
from kubetide.embedded.sim.node.groups import CGroup
from kubetide.embedded.sim.node.kernel import Kernel, Machine
from kubetide.embedded.sim.node.procfs import (
    Topology,
    lscpu_extended,
    proc_meminfo,
    proc_pressure,
    proc_stat,
    static_files,
)

CGROUP_ROOT = "/sys/fs/cgroup"
V1_CONTROLLERS = ("blkio", "cpu", "cpuacct", "cpuset", "memory", "perf_event")


class SimHost:
    """One node's file system, cgroup v1 or v2, with the names of either driver."""

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        monotonic: Callable[[], float],
        version: int = 2,
        driver: CgroupDriver = CgroupDriver.SYSTEMD,
        sockets: int = 1,
        threads: int = 1,
        anolis: bool = False,
    ) -> None:
        self.kernel = kernel
        self.machine = machine
        self.version = version
        self.paths = CgroupPaths(driver)
        self.topology = Topology(cpus=len(machine.cpus), sockets=sockets, threads=threads)
        self._monotonic = monotonic
        self._cgroups = CgroupFiles(kernel, machine, version=version, anolis=anolis)
        self._files: dict[str, str] = {}
        self._directories: dict[str, dict[str, None]] = {}
        for path, text in static_files(self.topology, machine).items():
            self.add_file(path, text)
        for path in _DYNAMIC:
            self._note_directories(path)
        self.writes: deque[tuple[float, str, str]] = deque(maxlen=10_000)
        """What was written of late: (second, path, text), in order."""
        self.runtime = "containerd"
        """The container runtime, as the ids of its containers name it."""
        for kube_qos in ("Burstable", "BestEffort"):
            machine.tree.make(self.paths.tier(kube_qos))
        machine.tree.make(self.paths.tier("BestEffort")).shares = 2

    def read(self, path: str) -> str:
        """Return the text of a file as of now."""
        path = posixpath.normpath(path)
        self.kernel.refresh(self._monotonic())
        if path.startswith(CGROUP_ROOT + "/"):
            controller, group, file = self._locate(path)
            if file is None:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            reader = self._cgroups.readers.get((controller, file))
            if reader is None:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            text = reader(group)
            return text if text.endswith("\n") or not text else text + "\n"
        dynamic = self._dynamic(path)
        if dynamic is not None:
            return dynamic
        if path in self._files:
            return self._files[path]
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    def write(self, path: str, value: str) -> None:
        """Write a setting; the model follows from this moment on."""
        path = posixpath.normpath(path)
        self.kernel.advance(self._monotonic())
        if path.startswith(CGROUP_ROOT + "/"):
            controller, group, file = self._locate(path)
            if file is None or (controller, file) not in self._cgroups.readers:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            writer = self._cgroups.writers.get((controller, file))
            if writer is None:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            writer(group, value)
            self.kernel.changed(self.machine)
        elif path in self._files:
            self._files[path] = value if value.endswith("\n") else value + "\n"
        else:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.writes.append((self._monotonic(), path, value))

    def list_dirs(self, path: str) -> list[str]:
        """Return the names of the directories directly below `path`."""
        path = posixpath.normpath(path)
        if path == CGROUP_ROOT and self.version == 1:
            return list(V1_CONTROLLERS)
        if path == CGROUP_ROOT or path.startswith(CGROUP_ROOT + "/"):
            _, group, file = self._locate(path)
            if file is not None:
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            return sorted(group.children)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted(self._directories[path])

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        path = posixpath.normpath(path)
        if path == CGROUP_ROOT:
            return True
        if path.startswith(CGROUP_ROOT + "/"):
            try:
                controller, _, file = self._locate(path)
            except FileNotFoundError:
                return False
            return file is None or (controller, file) in self._cgroups.readers
        return path in self._files or path in _DYNAMIC or path in self._directories

    def mkdir(self, path: str) -> None:
        """Make a cgroup; its parent must exist."""
        path = posixpath.normpath(path)
        parent, name = posixpath.split(path)
        _, group, file = self._locate(parent)
        if file is not None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", parent)
        if name in group.children:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.machine.tree.make("/".join(part for part in (group.path, name) if part))
        self.kernel.changed(self.machine)

    def rmdir(self, path: str) -> None:
        """Remove an empty cgroup."""
        _, group, file = self._locate(posixpath.normpath(path))
        if file is not None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        self.kernel.advance(self._monotonic())
        self.machine.tree.remove(group)
        self.kernel.changed(self.machine)

    def add_file(self, path: str, text: str) -> None:
        """Put a file outside the cgroup tree, as a kernel feature or a device would."""
        path = posixpath.normpath(path)
        self._files[path] = text
        self._note_directories(path)

    def _note_directories(self, path: str) -> None:
        below = posixpath.dirname(path)
        self._directories.setdefault(below, {})
        while below != "/":
            above, name = posixpath.split(below)
            self._directories.setdefault(above, {})[name] = None
            below = above

    def run(self, command: Sequence[str], *, timeout: float = 5.0) -> str:
        """Answer the commands the agent uses; all others are not installed."""
        words = list(command)
        if words[0] == "nsenter":
            words = words[2:]
        if words[:1] == ["lscpu"]:
            if "-y" in words:
                return f"Thread(s) per core:  {self.topology.threads}\n"
            return lscpu_extended(self.topology)
        if words[:2] == ["getconf", "CLK_TCK"]:
            return "100\n"
        if words[:1] == ["lsblk"]:
            return 'NAME="vda" TYPE="disk" MAJ:MIN="253:0"\nNAME="vda1" TYPE="part" MAJ:MIN="253:1"\n'
        if words[:1] == ["findmnt"]:
            return 'TARGET="/" SOURCE="/dev/vda1"\n'
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", words[0])

    def _locate(self, path: str) -> tuple[str, CGroup, str | None]:
        """Split a cgroup path into controller, group and file; the file is None for a directory."""
        rest = path[len(CGROUP_ROOT) :].strip("/")
        controller = ""
        if self.version == 1:
            controller, _, rest = rest.partition("/")
            if controller not in V1_CONTROLLERS:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        directory, _, file = rest.rpartition("/")
        group = self.machine.tree.find(directory)
        if group is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        below = group.children.get(file) if file else group
        return (controller, group, file) if below is None else (controller, below, None)

    def _dynamic(self, path: str) -> str | None:
        if path == "/proc/stat":
            return proc_stat(self.kernel, self.machine)
        if path == "/proc/meminfo":
            return proc_meminfo(self.kernel, self.machine)
        if path == "/proc/uptime":
            return f"{self.kernel.now:.2f} 0.00\n"
        if path == "/proc/loadavg":
            busy = sum(
                float(self.kernel.demand[leaf.row]) for leaf in self.machine.tree.root.leaves() if leaf.row is not None
            )
            return f"{busy:.2f} {busy:.2f} {busy:.2f} 1/100 1000\n"
        if path in ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"):
            return proc_pressure(self.kernel, self.machine, posixpath.basename(path))
        return None


_DYNAMIC = (
    "/proc/stat",
    "/proc/meminfo",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
)
