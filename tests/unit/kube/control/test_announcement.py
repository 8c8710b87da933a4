"""What a process says of itself in its Leases, and how it is read."""

import socket
from dataclasses import dataclass

import pytest

from kubetide.kube.control.announcement import ADDRESS, HOST, POD, Announced, Announcement, read_announcement


@dataclass
class Server:
    host: str = "0.0.0.0"
    port: int = 8941
    serves: bool = True

    def ready(self) -> bool:
        return self.serves


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("server", "environment", "expected"),
    [
        pytest.param(Server(), {}, {ADDRESS: f"{HERE}:8941", HOST: HERE}, id="everywhere"),
        pytest.param(Server("127.0.0.1", 9), {}, {ADDRESS: "127.0.0.1:9", HOST: HERE}, id="on-loopback"),
        pytest.param(Server("::1", 9), {}, {ADDRESS: "[::1]:9", HOST: HERE}, id="IPv6"),
        pytest.param(
            Server(),
            {"POD_IP": "10.0.0.7", "NAMESPACE": "kube-system", "POD_NAME": "hpa-1"},
            {ADDRESS: "10.0.0.7:8941", HOST: HERE, POD: "kube-system/hpa-1"},
            id="in-a-pod",
        ),
        pytest.param(Server(serves=False), {}, {}, id="before-it-serves"),
    ],
)
def test_what_is_announced(server: Server, environment: dict[str, str], expected: dict[str, str]) -> None:
    announcement = Announcement(environment)
    assert announcement.annotations() == {}
    announcement.serving(server)
    assert announcement.annotations() == expected


@pytest.mark.parametrize(
    ("annotations", "loopback"),
    [
        pytest.param({ADDRESS: "somewhere:8941", HOST: HERE}, "127.0.0.1:8941", id="this-machine"),
        pytest.param({ADDRESS: "127.0.0.2:8941", HOST: HERE}, "127.0.0.2:8941", id="one-address-of-it"),
        pytest.param({ADDRESS: "10.0.0.7:8941", HOST: f"not-{HERE}"}, "", id="another-machine"),
    ],
)
def test_who_is_on_the_same_machine_asks_on_loopback(annotations: dict[str, str], loopback: str) -> None:
    found = read_announcement(annotations)
    assert isinstance(found, Announced)
    assert (found.loopback, found.port) == (loopback, 8941)


@pytest.mark.parametrize("address", ["", "here", ":", "here:", ":8941", "here:0", "here:70000", "here:x"])
def test_what_makes_no_sense_is_no_announcement(address: str) -> None:
    assert read_announcement({ADDRESS: address}) is None
    assert read_announcement(None) is None
