"""Detection: driver, kernel features, processors and NUMA nodes from sysfs."""

import pytest

from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.node.core import files
from kubetide.node.core.formats.numbers import FormatError
from kubetide.node.core.layout import Layout
from kubetide.node.host import detect, facts
from unit.node.memory_host import MemoryHost

LAYOUT = Layout(version=1, cgroup_root="/cg")


@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        pytest.param(["kubepods.slice"], CgroupDriver.SYSTEMD, id="systemd"),
        pytest.param(["kubepods"], CgroupDriver.CGROUPFS, id="cgroupfs"),
        pytest.param(["kubepods", "kubepods.slice"], CgroupDriver.SYSTEMD, id="systemd-wins"),
        pytest.param([], None, id="nobody-knows"),
    ],
)
def test_the_driver_is_seen_in_the_directories(directories: list[str], expected: CgroupDriver | None) -> None:
    host = MemoryHost({f"/cg/cpu/{name}/tasks": "" for name in directories})
    assert detect.driver_by_directories(host, LAYOUT) is expected


@pytest.mark.parametrize(
    ("command", "config", "expected"),
    [
        pytest.param(["kubelet", "--cgroup-driver=systemd"], None, CgroupDriver.SYSTEMD, id="flag"),
        pytest.param(["kubelet", "--cgroup-driver", "systemd"], None, CgroupDriver.SYSTEMD, id="flag-in-two-words"),
        pytest.param(["kubelet"], None, CgroupDriver.CGROUPFS, id="neither"),
        pytest.param(["kubelet"], "kind: X\ncgroupDriver: systemd\n", CgroupDriver.SYSTEMD, id="config"),
        pytest.param(["kubelet"], "kind: X\n", CgroupDriver.CGROUPFS, id="config-is-silent"),
        pytest.param(["kubelet", "--cgroup-driver=other"], None, None, id="no-driver-at-all"),
    ],
)
def test_the_kubelet_reports_its_driver(command: list[str], config: str | None, expected: CgroupDriver | None) -> None:
    assert detect.driver_by_kubelet(command, config) is expected


def test_a_relative_config_is_found_from_the_working_directory() -> None:
    assert detect.kubelet_config_path(["kubelet", "--config=conf/k.yaml"], "/var/lib") == "/var/lib/conf/k.yaml"
    assert detect.kubelet_config_path(["kubelet", "--config", "/etc/k.yaml"], "/x") == "/etc/k.yaml"
    assert detect.kubelet_config_path(["kubelet"], "/x") is None


@pytest.mark.parametrize(
    ("text", "nanos"), [("100\n", 10_000_000), ("1000", 1_000_000), ("", 10_000_000), ("0", 10_000_000)]
)
def test_a_tick_is_ten_milliseconds_by_default(text: str, nanos: int) -> None:
    assert detect.tick_nanos(text) == nanos


def test_missing_features_are_named_with_their_effect() -> None:
    host = MemoryHost({LAYOUT.cgroup_file(files.CPU_BURST, "kubepods.slice"): "0"})
    found = {feature.name: feature for feature in detect.kernel_features(host, LAYOUT, "flags : cat_l3 mba\n")}
    assert found["CFS burst"].present
    assert found["cache and bandwidth allocation"].present
    assert not found["cpu.idle"].present
    assert found["cpu.idle"].without


def sysfs(cpus: int, *, sockets: int = 1) -> dict[str, str]:
    contents: dict[str, str] = {}
    for cpu in range(cpus):
        base = f"/sys/devices/system/cpu/cpu{cpu}"
        contents[f"{base}/topology/core_id"] = f"{cpu % (cpus // sockets)}\n"
        contents[f"{base}/topology/physical_package_id"] = f"{cpu * sockets // cpus}\n"
        contents[f"{base}/cache/index3/level"] = "3\n"
        contents[f"{base}/cache/index3/id"] = f"{cpu * sockets // cpus}\n"
    for node in range(sockets):
        size = cpus // sockets
        contents[f"/sys/devices/system/node/node{node}/cpulist"] = f"{node * size}-{(node + 1) * size - 1}\n"
    return contents


def test_cores_are_numbered_over_the_whole_machine() -> None:
    found = facts.processors_from_sysfs(MemoryHost(sysfs(4, sockets=2)), Layout())
    assert [(one.cpu, one.core, one.socket, one.node, one.l3) for one in found] == [
        (0, 0, 0, 0, 0),
        (1, 1, 0, 0, 0),
        (2, 2, 1, 1, 1),
        (3, 3, 1, 1, 1),
    ]


def test_a_machine_without_processors_is_an_error() -> None:
    with pytest.raises(FormatError):
        facts.processors_from_sysfs(MemoryHost(), Layout())


def test_numa_facts_are_all_or_nothing() -> None:
    host = MemoryHost({"/sys/bus/node/devices/node0/meminfo": "Node 0 MemTotal: 10 kB\n"})
    assert facts.numa_facts(host, Layout())[0].memory.total_bytes == 10240
    host.files["/sys/bus/node/devices/node2/meminfo"] = "Node 2 MemTotal: 10 kB\n"
    with pytest.raises(FormatError):
        facts.numa_facts(host, Layout())


@pytest.mark.parametrize("name", ["power", "node", "nodeX", "node01", "node-1"])
def test_an_entry_that_is_no_numa_node_is_passed_over(name: str) -> None:
    host = MemoryHost(
        {
            "/sys/bus/node/devices/node0/meminfo": "Node 0 MemTotal: 10 kB\n",
            "/sys/bus/node/devices/node1/meminfo": "Node 1 MemTotal: 10 kB\n",
            f"/sys/bus/node/devices/{name}/meminfo": "Node 1 MemTotal: 10 kB\n",
        }
    )
    assert [one.node for one in facts.numa_facts(host, Layout())] == [0, 1]


def test_numa_nodes_that_are_devices_are_no_part_of_the_machine() -> None:
    root = "/sys/bus/node/devices"
    host = MemoryHost({f"{root}/node{node}/meminfo": f"Node {node} MemTotal: 10 kB\n" for node in (0, 1, 4, 5)})
    with pytest.raises(FormatError):
        facts.numa_facts(host, Layout())
    initiators = "/sys/devices/system/node/has_generic_initiator"
    host.files[initiators] = "4-5\n"
    assert [one.node for one in facts.numa_facts(host, Layout())] == [0, 1]
    host.files[initiators] = "\n"
    with pytest.raises(FormatError):
        facts.numa_facts(host, Layout())


def test_an_unreadable_numa_node_is_passed_over_while_the_others_are_numbered_from_0() -> None:
    root = "/sys/bus/node/devices"
    host = MemoryHost({f"{root}/node0/meminfo": "Node 0 MemTotal: 10 kB\n", f"{root}/node1/cpulist": ""})
    assert [one.node for one in facts.numa_facts(host, Layout())] == [0]
    host.files[f"{root}/node2/meminfo"] = "Node 2 MemTotal: 10 kB\n"
    with pytest.raises(FormatError):
        facts.numa_facts(host, Layout())


def test_huge_pages_that_cannot_be_read_somewhere_count_nowhere() -> None:
    host = MemoryHost(
        {
            "/sys/bus/node/devices/node0/meminfo": "Node 0 MemTotal: 10 kB\n",
            "/sys/bus/node/devices/node1/meminfo": "Node 1 MemTotal: 10 kB\n",
            "/sys/bus/node/devices/node2/meminfo": "Node 2 MemTotal: 10 kB\n",
            "/sys/bus/node/devices/node0/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
        }
    )
    assert [one.huge_pages for one in facts.numa_facts(host, Layout())] == [{"1Gi": 0, "2Mi": 0}] * 3
