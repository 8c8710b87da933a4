"""Finding the kubelet by its port, and its driver by its command line."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.node.core.layout import Layout
from kubetide.node.host.linux import LinuxHost
from kubetide.node.host.protocol import Host
from kubetide.node.state.driver import AT_MOST_SECONDS, find_driver, listening, process_on_port
from kubetide.node.state.kubelet import kubelet_address, kubelet_port
from unit.node.memory_host import MemoryHost

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:280A 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
"""


def test_only_listening_sockets_of_the_port_count() -> None:
    assert list(listening(TABLE, 10250)) == ["4711"]
    assert list(listening(TABLE, 1)) == []


def test_the_process_behind_a_port_is_found() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        found = process_on_port(LinuxHost(), Layout(), server.getsockname()[1])
    assert found == str(os.getpid())


def test_a_machine_without_tables_has_nobody_on_any_port() -> None:
    assert process_on_port(MemoryHost(), Layout(), 10250) is None


def test_the_node_says_where_its_kubelet_listens() -> None:
    node = {
        "status": {
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10255}},
        }
    }
    assert kubelet_address(node, "InternalIP") == "10.0.0.1"
    assert kubelet_address(node, "nonsense") == "10.0.0.1"
    assert kubelet_address(node, "ExternalIP") is None
    assert kubelet_port(node) == 10255
    assert kubelet_port({}) == 10250


CGROUPFS_ROOT = f"{Layout().cgroup_dir('cpu', CgroupPaths(CgroupDriver.CGROUPFS).kube_root)}/cgroup.procs"


def found(host: Host, *, layout: Layout | None = None, port: int | None = None) -> tuple[CgroupDriver, float]:
    """Return which driver is found on a node, and after how many seconds; without a port there is no Node object."""

    async def main() -> tuple[CgroupDriver, float]:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        if port is not None:
            endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
            api.insert({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}, "status": endpoints})
        client = Client(InProcessTransport(api), clock=clock)
        if isinstance(host, MemoryHost) and host.files:
            appearing, host.files = host.files, {}
            asyncio.get_running_loop().call_later(15.0, host.files.update, appearing)
        try:
            driver = await find_driver(client, clock, host, layout or Layout(), "one")
        finally:
            await client.close()
        return driver, clock.monotonic()

    return run_virtual(main())


def test_directories_that_the_kubelet_makes_meanwhile_tell_its_driver() -> None:
    assert found(MemoryHost({CGROUPFS_ROOT: ""}), port=1) == (CgroupDriver.CGROUPFS, 20.0)


def test_where_nobody_knows_the_driver_it_is_systemd_after_a_minute() -> None:
    assert found(MemoryHost()) == (CgroupDriver.SYSTEMD, AT_MOST_SECONDS)


def waits(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [one.fields for one in caplog.records if one.getMessage().startswith("waiting for the kubelet")]  # type: ignore[attr-defined]


def test_every_look_reports_what_is_waited_for_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found(MemoryHost(), port=10255)
    told = waits(caplog)
    assert [one["waited"] for one in told] == [f"{seconds}s" for seconds in range(0, 60, 10)]
    assert told[0] == {
        "cgroups": "/sys/fs/cgroup/cpu",
        "reason": "no process listens on the kubelet's port 10255",
        "waited": "0s",
        "at_most": "60s",
    }


def test_a_missing_node_object_is_named_as_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found(MemoryHost())
    assert 'nodes "one" not found' in waits(caplog)[0]["reason"]


def test_a_driver_that_is_found_at_once_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        found(LinuxHost(), layout=Layout(cgroup_root="/nowhere"), port=server.getsockname()[1])
    assert waits(caplog) == []


def test_the_process_on_the_kubelet_port_reports_the_driver_by_its_command_line(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        layout = Layout(cgroup_root=str(tmp_path))
        # This process was started without a kubelet's flags, and without a file the default is cgroupfs.
        assert found(LinuxHost(), layout=layout, port=server.getsockname()[1]) == (CgroupDriver.CGROUPFS, 0.0)
