"""The table of kernel files: where they lie, what they take, what counts as already there."""

import pytest

from kubetide.node.core import files
from kubetide.node.core.files import CGROUP_FILES, NotOnThisVersion, ValueRefused
from kubetide.node.core.layout import EscapesRoot, Layout, inside


@pytest.mark.parametrize(
    ("name", "v1", "v2"),
    [
        ("cpu.shares", "cpu/d/cpu.shares", "d/cpu.weight"),
        ("cpu.cfs_quota_us", "cpu/d/cpu.cfs_quota_us", "d/cpu.max"),
        ("cpuacct.usage", "cpuacct/d/cpuacct.usage", "d/cpu.stat"),
        ("memory.limit_in_bytes", "memory/d/memory.limit_in_bytes", "d/memory.max"),
        ("tasks", "cpu/d/tasks", "d/cgroup.threads"),
        ("io.pressure", "cpuacct/d/io.pressure", "d/io.pressure"),
    ],
)
def test_a_file_is_found_on_both_versions(name: str, v1: str, v2: str) -> None:
    file = CGROUP_FILES[name]
    assert (file.relative(1, "d"), file.relative(2, "d")) == (v1, v2)


@pytest.mark.parametrize(("name", "version"), [("memory.idle_page_stats", 2), ("cpuset.cpus.effective", 1)])
def test_a_file_of_the_other_version_is_an_error(name: str, version: int) -> None:
    with pytest.raises(NotOnThisVersion):
        CGROUP_FILES[name].relative(version, "d")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu.bvt_warp_ns", "3"),
        ("cpu.shares", "1"),
        ("memory.wmark_min_adj", "-26"),
        ("memory.min", "lots"),
        ("cpuset.cpus", "0-"),
        ("blkio.throttle.read_iops_device", ""),
        ("cpu.cfs_burst_us", "100000001"),
    ],
)
def test_values_out_of_range_are_refused_before_the_kernel_is_asked(name: str, value: str) -> None:
    with pytest.raises(ValueRefused):
        CGROUP_FILES[name].validate(1, value)


@pytest.mark.parametrize(
    ("name", "version", "text", "value"),
    [
        pytest.param("cpuset.cpus", 1, "0,1,2\n", "0-2", id="other-spelling"),
        pytest.param("memory.high", 2, "max\n", "9223372036854775807", id="the-largest-number-is-max"),
        pytest.param("memory.limit_in_bytes", 1, "9223372036854771712\n", "-1", id="v1-spells-no-limit-as-a-number"),
        pytest.param("cpu.cfs_quota_us", 2, "max 100000\n", "-1", id="only-the-quota-field"),
        pytest.param("cpu.cfs_period_us", 2, "max 100000\n", "100000", id="only-the-period-field"),
        pytest.param(
            "blkio.cost.qos",
            1,
            "253:0 enable=1 ctrl=user rpct=0.00 rlat=3000 wpct=0.00 wlat=4000 min=1.00 max=10000.00\n",
            "253:0 enable=1 ctrl=user rlat=3000 wlat=4000",
            id="only-the-latencies",
        ),
        pytest.param("blkio.throttle.read_bps_device", 1, "8:0 5\n", "253:0 0", id="no-limit-to-remove"),
    ],
)
def test_a_value_that_is_there_is_recognised(name: str, version: int, text: str, value: str) -> None:
    assert CGROUP_FILES[name].same(version, text, value)


@pytest.mark.parametrize("part", ["..", "a/../b", "a\0b"])
def test_names_cannot_leave_their_root(part: str) -> None:
    with pytest.raises(EscapesRoot):
        inside("/sys/fs/cgroup", part)


def test_slashes_and_dots_are_harmless() -> None:
    assert inside("/cg/", "/a//./b/") == "/cg/a/b"
    assert Layout(version=2, cgroup_root="/cg").cgroup_dir("cpu", "kubepods") == "/cg/kubepods"


def test_resctrl_groups_are_system_files() -> None:
    assert files.resctrl_file("BE", "schemata").path == "resctrl/BE/schemata"
    assert files.resctrl_file("", "tasks").path == "resctrl/tasks"


def test_system_files_have_ranges_too() -> None:
    with pytest.raises(ValueRefused):
        files.MIN_FREE_KBYTES.validate("100")
