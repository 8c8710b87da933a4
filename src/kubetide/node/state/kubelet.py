"""The kubelet of this node: its pods and its configuration, over HTTPS with the agent's identity."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar

from kubetide.api.values.codec import decode_raw
from kubetide.clock import Clock
from kubetide.kube.client.errors import error_from
from kubetide.kube.client.transport import Response, Transport
from kubetide.telemetry import Telemetry

T = TypeVar("T")

DEFAULT_PORT = 10250
DEFAULT_ADDRESS_TYPE = "InternalIP"
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")


class Kubelet(Protocol):
    """What the agent asks the kubelet."""

    async def pods(self) -> bytes:
        """Return the pod list as JSON."""
        ...

    async def config(self) -> dict[str, Any]:
        """Return the answer of `/configz`."""
        ...


class HttpKubelet:
    """A kubelet behind a transport."""

    def __init__(self, transport: Transport, timeout: float = 3.0) -> None:
        self._transport = transport
        self._timeout = timeout

    async def pods(self) -> bytes:
        """Ask for the pods."""
        return (await self._get("/pods/")).body

    async def config(self) -> dict[str, Any]:
        """Ask for the configuration."""
        answer = decode_raw((await self._get("/configz")).body, what="configz of the kubelet")
        return answer if isinstance(answer, dict) else {}

    async def _get(self, path: str) -> Response:
        response = await self._transport.request("GET", path, timeout=self._timeout)
        if response.status >= 400:
            raise error_from(response)
        return response

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()


class TimedKubelet:
    """A kubelet whose answers are timed."""

    def __init__(self, kubelet: Kubelet, clock: Clock, telemetry: Telemetry, node_name: str) -> None:
        self._kubelet = kubelet
        self._clock = clock
        self._node_name = node_name
        self._seconds = telemetry.histogram(
            "koordlet_kubelet_request_duration_seconds",
            "How long the kubelet takes to answer.",
            ("node", "verb", "path", "status"),
        )

    async def pods(self) -> bytes:
        """Ask for the pods."""
        return await self._timed("/pods/", self._kubelet.pods())

    async def config(self) -> dict[str, Any]:
        """Ask for the configuration."""
        return await self._timed("/configz", self._kubelet.config())

    async def _timed(self, path: str, answer: Awaitable[T]) -> T:
        began, status = self._clock.monotonic(), "failed"
        try:
            result = await answer
            status = "succeeded"
            return result
        finally:
            seconds = self._clock.monotonic() - began
            self._seconds.labels(self._node_name, "GET", path, status).observe(seconds)


def kubelet_address(node: Mapping[str, Any], address_type: str) -> str | None:
    """Return the address of the node to ask at; an unsupported type means the internal one."""
    wanted = address_type if address_type in _ADDRESS_TYPES else DEFAULT_ADDRESS_TYPE
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == wanted:
            return str(address.get("address", "")) or None
    return None


def kubelet_port(node: Mapping[str, Any]) -> int:
    """Return the port that the kubelet reports it listens on."""
    endpoints = (node.get("status") or {}).get("daemonEndpoints") or {}
    port = (endpoints.get("kubeletEndpoint") or {}).get("Port")
    return port if isinstance(port, int) and port > 0 else DEFAULT_PORT
