"""A simulated host: kernel files in both cgroup versions, and writes that the model obeys."""

import errno

import pytest

from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.embedded.sim.node.hosts import SimHost
from kubetide.embedded.sim.node.kernel import Kernel

CG = "/sys/fs/cgroup"


class Node:
    """A host with one busy container and a hand-moved clock."""

    def __init__(self, version: int, driver: CgroupDriver = CgroupDriver.SYSTEMD, *, anolis: bool = False) -> None:
        self.now = 0.0
        self.kernel = Kernel()
        machine = self.kernel.add_machine("node-1", cpus=8, memory_bytes=16 * 2**30)
        self.host = SimHost(
            self.kernel, machine, monotonic=lambda: self.now, version=version, driver=driver, sockets=2, threads=2,
            anolis=anolis,
        )  # fmt: skip
        self.pod = self.host.paths.pod("Burstable", "a-b")
        self.container = self.host.paths.container(self.pod, "containerd://f00")
        self.row = self.kernel.start(machine, self.container)
        self.kernel.demand[self.row] = 2.0
        self.kernel.anon[self.row] = 2**20
        self.kernel.cache_goal[self.row] = 2**20

    def file(self, directory: str, name: str, controller: str) -> str:
        return f"{CG}/{controller}/{directory}/{name}" if self.host.version == 1 else f"{CG}/{directory}/{name}"


def test_a_quota_written_on_v1_slows_the_pod() -> None:
    node = Node(1)
    node.now = 10
    assert node.host.read(node.file(node.container, "cpuacct.usage", "cpuacct")) == "20000000000\n"
    node.host.write(node.file(node.container, "cpu.cfs_quota_us", "cpu"), "50000")
    node.now = 20
    assert node.host.read(node.file(node.container, "cpuacct.usage", "cpuacct")) == "25000000000\n"
    assert "nr_throttled 100\n" in node.host.read(node.file(node.container, "cpu.stat", "cpu"))


def test_a_quota_written_on_v2_slows_the_pod() -> None:
    node = Node(2, CgroupDriver.CGROUPFS)
    node.now = 10
    node.host.write(node.file(node.pod, "cpu.max", "cpu"), "100000 100000")
    node.now = 20
    assert "usage_usec 30000000\n" in node.host.read(node.file(node.container, "cpu.stat", "cpu"))
    assert node.host.read(node.file(node.pod, "cpu.max", "cpu")) == "100000 100000\n"
    assert "some avg10=31." in node.host.read(node.file(node.pod, "cpu.pressure", "cpu"))


def test_directories_follow_the_driver() -> None:
    assert Node(2).host.list_dirs(f"{CG}/kubepods.slice") == [
        "kubepods-besteffort.slice", "kubepods-burstable.slice",
    ]  # fmt: skip
    assert Node(1, CgroupDriver.CGROUPFS).host.list_dirs(f"{CG}/cpu/kubepods") == ["besteffort", "burstable"]
    assert "cpuset" in Node(1).host.list_dirs(CG)


@pytest.mark.parametrize(
    ("version", "path", "value", "code"),
    [
        pytest.param(1, "cpu/kubepods.slice/cpu.cfs_quota_us", "20", errno.EINVAL, id="v1-quota-below-a-millisecond"),
        pytest.param(1, "cpu/kubepods.slice/cpu.shares", "many", errno.EINVAL, id="not-a-number"),
        pytest.param(1, "cpuset/kubepods.slice/cpuset.cpus", "0-99", errno.EINVAL, id="no-such-cpu"),
        pytest.param(1, "cpu/gone/cpu.shares", "2", errno.ENOENT, id="no-such-group"),
        pytest.param(1, "cpu/kubepods.slice/cpu.bvt_warp_ns", "2", errno.ENOENT, id="feature-of-another-kernel"),
        pytest.param(2, "kubepods.slice/cpu.weight", "20000", errno.ERANGE, id="v2-weight-out-of-range"),
        pytest.param(2, "kubepods.slice/cpu.stat", "0", errno.EACCES, id="read-only"),
        pytest.param(2, "kubepods.slice/cpu.max", "a b c", errno.EINVAL, id="v2-three-words"),
    ],
)
def test_the_kernel_refuses_with_its_own_error(version: int, path: str, value: str, code: int) -> None:
    with pytest.raises(OSError) as caught:
        Node(version).host.write(f"{CG}/{path}", value)
    assert caught.value.errno == code


def test_v1_keeps_children_inside_their_parent() -> None:
    node = Node(1)
    node.host.write(node.file(node.pod, "cpu.cfs_quota_us", "cpu"), "100000")
    with pytest.raises(OSError) as caught:
        node.host.write(node.file(node.container, "cpu.cfs_quota_us", "cpu"), "200000")
    assert caught.value.errno == errno.EINVAL
    node.host.write(node.file(node.container, "cpuset.cpus", "cpuset"), "0-3")
    with pytest.raises(OSError) as caught:
        node.host.write(node.file(node.pod, "cpuset.cpus", "cpuset"), "0-1")
    assert caught.value.errno == errno.EBUSY
    node.host.write(node.file(node.container, "cpuset.cpus", "cpuset"), "0-1")
    node.host.write(node.file(node.pod, "cpuset.cpus", "cpuset"), "0-1")
    with pytest.raises(OSError) as caught:
        node.host.write(node.file(node.container, "cpuset.cpus", "cpuset"), "2")
    assert caught.value.errno == errno.EACCES


def test_memory_files_agree_with_each_other() -> None:
    one, two = Node(1), Node(2)
    assert one.host.read(one.file(one.pod, "memory.usage_in_bytes", "memory")) == f"{2 * 2**20}\n"
    assert f"total_active_anon {2**20}\n" in one.host.read(one.file(one.pod, "memory.stat", "memory"))
    assert two.host.read(two.file(two.pod, "memory.current", "")) == f"{2 * 2**20}\n"
    assert f"file {2**20}\n" in two.host.read(two.file(two.pod, "memory.stat", ""))
    meminfo = two.host.read("/proc/meminfo")
    assert "MemTotal:        16777216 kB" in meminfo
    assert "MemAvailable:    16776192 kB" in meminfo


def test_an_anolis_kernel_has_its_files() -> None:
    node = Node(1, anolis=True)
    path = node.file(node.pod, "memory.wmark_ratio", "memory")
    node.host.write(path, "95")
    assert node.host.read(path) == "95\n"
    node.host.write(node.file(node.pod, "cpu.bvt_warp_ns", "cpu"), "-1")
    assert node.host.read(node.file(node.pod, "cpu.bvt_warp_ns", "cpu")) == "-1\n"


def test_topology_reads_the_same_from_files_and_from_lscpu() -> None:
    node = Node(2)
    lines = node.host.run(["lscpu", "-e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE"]).splitlines()
    assert lines[6].split() == ["5", "0", "0", "1", "1:1:1:0", "yes"]
    assert node.host.read("/sys/devices/system/cpu/cpu5/topology/core_id") == "1\n"
    assert node.host.read("/sys/devices/system/cpu/cpu5/topology/thread_siblings_list") == "1,5\n"
    assert node.host.read("/sys/bus/node/devices/node1/cpulist") == "2-3,6-7\n"
    assert node.host.list_dirs("/sys/bus/node/devices") == ["node0", "node1"]


def test_ticks_count_what_the_groups_used() -> None:
    node = Node(2)
    node.now = 100
    words = node.host.read("/proc/stat").split()
    assert int(words[1]) + int(words[3]) == 20_000
    assert int(words[4]) == 8 * 10_000 - 20_000


def test_groups_can_be_made_and_removed() -> None:
    node = Node(2)
    node.host.mkdir(f"{CG}/host-latency-sensitive")
    node.host.mkdir(f"{CG}/host-latency-sensitive/nginx")
    assert node.host.exists(f"{CG}/host-latency-sensitive/nginx/cpu.max")
    with pytest.raises(OSError, match="busy"):
        node.host.rmdir(f"{CG}/host-latency-sensitive")
    node.host.rmdir(f"{CG}/host-latency-sensitive/nginx")
    assert not node.host.exists(f"{CG}/host-latency-sensitive/nginx")


def test_system_settings_remember_what_was_written() -> None:
    node = Node(2)
    node.host.write("/proc/sys/vm/min_free_kbytes", "99999")
    assert node.host.read("/proc/sys/vm/min_free_kbytes") == "99999\n"
    assert list(node.host.writes) == [(0.0, "/proc/sys/vm/min_free_kbytes", "99999")]
    with pytest.raises(FileNotFoundError):
        node.host.read("/proc/sys/vm/nothing")
