"""What the best-effort tier may use: the CPUs of its first container, or its quota."""

from kubetide.node.collectors.best_effort import first_container, real_limit_millis
from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.host.readers import CgroupReader
from unit.node.memory_host import MemoryHost

TIER = "kubepods.slice/kubepods-besteffort.slice"


class Vanishing(MemoryHost):
    """A host on which the first pod ends between two looks."""

    def list_dirs(self, path: str) -> list[str]:
        if path.endswith("/gone"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return ["gone", "pod"] if path.endswith(TIER) else super().list_dirs(path)


def test_a_pod_that_ends_in_this_moment_does_not_cost_the_sync() -> None:
    layout = Layout(version=1, cgroup_root="/cg")
    host = Vanishing(
        {
            layout.cgroup_file(files.CPUSET, f"{TIER}/pod/container"): "0-2",
            layout.cgroup_file(files.CPU_QUOTA, TIER): "-1",
            layout.cgroup_file(files.CPU_PERIOD, TIER): "100000",
        }
    )
    reader = CgroupReader(host, layout)
    assert first_container(reader, TIER) == f"{TIER}/pod/container"
    assert real_limit_millis(reader) == 3000
