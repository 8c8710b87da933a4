"""Where a running process answers: written into the Lease it holds, and read from there by who wants to ask it.

    kubetide.io/status-address   host:port of its status endpoints, as other processes on its network reach it
    kubetide.io/status-host      the machine it runs on: from there it is asked on loopback, which needs no token
    kubetide.io/status-pod       namespace/name, inside a cluster: it is asked through a port-forward to that pod

Every renewal writes them anew, so that a process that comes back on another port is found there; who takes the Lease
over without announcing itself removes what its predecessor wrote.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

PREFIX = "kubetide.io/status-"
ADDRESS, HOST, POD = f"{PREFIX}address", f"{PREFIX}host", f"{PREFIX}pod"


class Served(Protocol):
    """A server that knows its port once it listens."""

    @property
    def host(self) -> str:
        """The address it listens on."""
        ...

    @property
    def port(self) -> int:
        """The port it listens on."""
        ...

    def ready(self) -> bool:
        """Whether it answers."""
        ...


class Announcement:
    """What a process says of itself in its Leases; nothing before it serves."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._hostname = socket.gethostname()
        self._reached_at = environment.get("POD_IP") or self._hostname
        namespace, name = environment.get("NAMESPACE", ""), environment.get("POD_NAME", "")
        self._pod = f"{namespace}/{name}" if namespace and name else ""
        self._served: Served | None = None

    def serving(self, served: Served) -> None:
        """Announce this server from now on."""
        self._served = served

    def annotations(self) -> dict[str, str]:
        """Return the annotations of this moment."""
        served = self._served
        if served is None or not served.ready():
            return {}
        everywhere = served.host in ("0.0.0.0", "::", "")
        host = self._reached_at if everywhere else served.host
        address = f"[{host}]:{served.port}" if ":" in host else f"{host}:{served.port}"
        return {ADDRESS: address, HOST: self._hostname, **({POD: self._pod} if self._pod else {})}


def announced_in(metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a Lease with what its holder announces, and without what an earlier one did."""
    kept = {key: text for key, text in (metadata.get("annotations") or {}).items() if not key.startswith(PREFIX)}
    together = {**kept, **annotations}
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**rest, "annotations": together} if together else rest


@dataclass(frozen=True, slots=True)
class Announced:
    """Where the holder of a Lease can be asked."""

    address: str
    host: str = ""
    pod: str = ""

    @property
    def port(self) -> int:
        """The port, also inside the pod."""
        return int(self.address.rpartition(":")[2])

    @property
    def loopback(self) -> str:
        """The address for who is on the same machine; empty where it is another one."""
        if self.host != socket.gethostname():
            return ""
        host = self.address.rpartition(":")[0].strip("[]")
        listens_on_one = host.startswith("127.") or host == "::1"
        return self.address if listens_on_one else f"127.0.0.1:{self.port}"


def read_announcement(annotations: Mapping[str, str] | None) -> Announced | None:
    """Return what a Lease announces; None where it announces nothing that can be asked."""
    found = annotations or {}
    address = found.get(ADDRESS, "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return Announced(address, found.get(HOST, ""), found.get(POD, ""))
