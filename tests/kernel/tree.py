"""A fake kubepods tree on the machine's real cgroups, under one `kubetide-*` directory that is removed afterwards.

Works on cgroup v1 (one directory per controller) and v2. Everything lies below the prefix, so nothing else on the
machine is touched.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.node.core.layout import Layout
from kubetide.node.host.linux import LinuxHost, cgroup_version

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "perf_event")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "io")

BURNER = "while True: pass"
EATER = """
import sys, time
held = bytearray(int(sys.argv[1]))
for start in range(0, len(held), 4096):
    held[start] = 1
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def why_not() -> str:
    """Say why real cgroups cannot be used here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root: run as root to use real cgroups"
    if not ROOT.exists():
        return "needs cgroups mounted at /sys/fs/cgroup"
    version = cgroup_version(str(ROOT))
    if version == 2:
        controllers = (ROOT / "cgroup.controllers").read_text().split()
        missing = {"cpu", "memory", "cpuset"} - set(controllers)
        if missing:
            return f"needs the cgroup controllers {', '.join(sorted(missing))}"
        probes = [ROOT]
    else:
        probes = [ROOT / name for name in ("cpu", "cpuacct", "cpuset", "memory")]
    for probe in probes:
        if not probe.is_dir():
            return f"needs {probe} to be mounted"
        if not os.access(probe, os.W_OK):
            return f"needs {probe} to be writable"
    return ""


class Tree:
    """Cgroups of pods that a test makes."""

    def __init__(self, prefix: str, *, root: Path = ROOT, version: int | None = None, bare: bool = False) -> None:
        self.root = root
        self.version = version or cgroup_version(str(root))
        self.paths = CgroupPaths(CgroupDriver.CGROUPFS, prefix)
        self.layout = Layout(version=self.version, paths=self.paths, cgroup_root=str(root))
        self.prefix = prefix
        self.bare = bare
        self.host = LinuxHost(keep_open=(str(root), "/proc/stat", "/proc/meminfo"))
        self._processes: list[subprocess.Popen[str]] = []
        self._made: list[Path] = []

    def places(self, directory: str) -> list[Path]:
        """Return where a cgroup lies: in every controller on v1, once on v2."""
        if self.version == 2:
            return [self.root / directory]
        return [self.root / name / directory for name in V1_CONTROLLERS if (self.root / name).is_dir()]

    def make(self, directory: str) -> None:
        """Make a cgroup and all above it."""
        parts = directory.split("/")
        for count in range(1, len(parts) + 1):
            for place in self.places("/".join(parts[:count])):
                if place.exists():
                    continue
                if self.version == 2 and not self.bare:
                    self._delegate(place.parent)
                place.mkdir()
                self._made.append(place)
                if place.is_relative_to(self.root / "cpuset"):
                    for name in ("cpuset.mems", "cpuset.cpus"):
                        (place / name).write_text((place.parent / name).read_text())

    def _delegate(self, parent: Path) -> None:
        available = (parent / "cgroup.controllers").read_text().split()
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        for name in V2_CONTROLLERS:
            if name in available and name not in enabled:
                (parent / "cgroup.subtree_control").write_text(f"+{name}")

    def tiers(self) -> None:
        """Make the kube root and the tiers."""
        for tier in self.paths.tiers():
            self.make(tier)

    def pod(self, uid: str, kube_qos: str = "Burstable", *containers: str) -> str:
        """Make a pod with containers; return its directory."""
        directory = self.paths.pod(kube_qos, uid)
        self.make(directory)
        for container in containers:
            self.make(f"{directory}/{container}")
        return directory

    def run(self, directory: str, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python process inside a cgroup."""
        procs = [str(place / "cgroup.procs") for place in self.places(directory)]
        enter = f"import os\nfor path in {procs!r}:\n    open(path, 'w').write(str(os.getpid()))\n"
        process = subprocess.Popen([sys.executable, "-c", enter + code, *arguments], stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        return process

    def read(self, controller: str, directory: str, file: str) -> str:
        """Read a file of the kernel, past everything kubetide does."""
        middle = controller if self.version == 1 else ""
        return (self.root / middle / directory / file).read_text()

    def usage_nanos(self, directory: str) -> int:
        """Return the kernel's own CPU time of a cgroup."""
        if self.version == 1:
            return int(self.read("cpuacct", directory, "cpuacct.usage"))
        stat = dict(line.split() for line in self.read("", directory, "cpu.stat").splitlines())
        return int(stat["usage_usec"]) * 1000

    def periods(self, directory: str) -> tuple[int, int]:
        """Return the kernel's own count of periods and throttled periods."""
        stat = dict(line.split() for line in self.read("cpu", directory, "cpu.stat").splitlines())
        return int(stat["nr_periods"]), int(stat["nr_throttled"])

    def limit_cpu(self, directory: str, micros: int) -> None:
        """Give a cgroup a quota per 100 ms."""
        if self.version == 1:
            (self.root / "cpu" / directory / "cpu.cfs_quota_us").write_text(str(micros))
        else:
            (self.root / directory / "cpu.max").write_text(f"{micros if micros >= 0 else 'max'} 100000")

    def close(self) -> None:
        """End all processes and remove every directory that was made."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()
        self.host.close()
        below = {place for made in self._made for place in self._tree(made)}
        for place in sorted(below, key=lambda path: -len(path.parts)):
            _remove(place)

    def _tree(self, top: Path) -> Iterator[Path]:
        yield top
        if top.is_dir():
            for child in top.iterdir():
                if child.is_dir():
                    yield from self._tree(child)


def _remove(place: Path) -> None:
    # A killed process leaves its cgroup a moment after it was waited for.
    for _ in range(2000):
        try:
            place.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            os.sched_yield()
        else:
            return


@contextmanager
def cgroup_tree(**options: Any) -> Iterator[Tree]:
    """Yield a tree of the machine's cgroups; skip the test where that is not possible."""
    if "root" not in options and (reason := why_not()):
        pytest.skip(reason)
    tree = Tree(f"kubetide-{os.getpid()}", **options)
    try:
        yield tree
    finally:
        tree.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the kernel, which tells nobody."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
