"""Finding the kubelet by its port, and its driver by its command line."""

import os
import socket

from kubetide.node.host.layout import Layout
from kubetide.node.host.linux import LinuxHost
from kubetide.node.state.driver import listening, process_on_port
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
