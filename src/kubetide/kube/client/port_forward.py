"""One HTTP question to a process inside a pod, through the API server's port-forward.

A port-forward ends on the pod's own loopback: the process needs no port that others can reach and no token to be
passed along, and RBAC decides who may ask (`get` and `create` on `pods/portforward`). The pods/proxy subresource would
be a plain GET, but it arrives at the pod as any other peer does, and the API server strips the Authorization header
that would open `/explain` to it.

The stream is a WebSocket with the subprotocol `v4.channel.k8s.io`: every message begins with a channel, 0 for data and
1 for errors, and the first message of each channel repeats the port.
"""

import asyncio
from collections.abc import AsyncIterator

import aiohttp

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import PODS
from kubetide.errors import Unavailable
from kubetide.kube.client.errors import ResponseTooLarge
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.transport import Response

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
LONGEST = 64 * 1024 * 1024


async def get(transport: HttpTransport, pod: ObjectKey, port: int, path: str, *, seconds: float = 10.0) -> Response:
    """Return what the process on `port` of the pod answers to a GET; raises Unavailable where nobody does."""
    where = f"pod {pod} port {port}"
    # HTTP/1.0: no chunks, no second request.
    lines = (f"GET {path} HTTP/1.0", "Host: localhost", "Accept: application/json", "Connection: close", "", "")
    request = "\r\n".join(lines).encode()
    try:
        async with asyncio.timeout(seconds):
            forward = PODS.path(namespace=pod.namespace, name=pod.name, subresource="portforward")
            async with transport.socket(forward, {"ports": str(port)}, PROTOCOL) as stream:
                await stream.send_bytes(bytes([DATA]) + request)
                return await _response(_data(stream, where), where)
    except TimeoutError as error:
        raise Unavailable(f"{where} does not answer within {seconds:g} s") from error


async def _data(stream: aiohttp.ClientWebSocketResponse, where: str) -> AsyncIterator[bytes]:
    """Yield what arrives from the pod, without the port that each channel begins with."""
    begun: set[int] = set()
    async for message in stream:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
            content = content[2:]
        if channel == ERROR and content:
            raise Unavailable(f"{where}: {content.decode(errors='replace').strip()}")
        if channel == DATA and content:
            yield content


async def _response(data: AsyncIterator[bytes], where: str) -> Response:
    """Read an answer up to the length it declares, or to the end of the stream."""
    received = bytearray()
    length: int | None = None
    head = b""
    async for part in data:
        received += part
        if len(received) > LONGEST:
            raise ResponseTooLarge(f"{where}: the answer is longer than {LONGEST} bytes")
        if not head and b"\r\n\r\n" in received:
            head = bytes(received[: received.index(b"\r\n\r\n")])
            del received[: len(head) + 4]
            declared = _headers(head).get("content-length", "")
            length = int(declared) if declared.isdecimal() else None
        if length is not None and len(received) >= length:
            break
    status = head.partition(b"\r\n")[0].split(b" ")[1:2]
    if not status or not status[0].isdigit() or (length is not None and len(received) < length):
        raise Unavailable(f"{where}: the answer was cut off")
    return Response(int(status[0]), _headers(head), bytes(received[:length]))


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
