"""ttRPC over NRI's connection multiplexer: two logical connections share one socket.

    frame      u32 connection (1: plugin service, 2: runtime service), u32 length, payload
    message    u32 length, u32 stream, u8 type (1 request, 2 response), u8 flags, envelope      (all big-endian)

A message may be cut into several frames and is put together again per connection. Frames are never longer than 4096
bytes: the other end reads into a buffer of that size and drops the connection when a frame does not fit. What the
other end sends is read with the same limits as it has, so that no length it names takes our memory.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from kubetide.errors import KubetideError, Unavailable
from kubetide.node.runtime.protos import ttrpc_pb2 as pb

PLUGIN_SERVICE, RUNTIME_SERVICE = 1, 2
REQUEST, RESPONSE = 1, 2
MAX_FRAME = 4096
MAX_MESSAGE = 4 << 20
INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 3, 12, 13

_FRAME = struct.Struct(">II")
_HEADER = struct.Struct(">IIBB")

Handler = Callable[[str, str, bytes], Awaitable[bytes]]
"""Answers a call: service, method, payload to payload."""


class ConnectionClosed(Unavailable):
    """The other end closed the connection."""


class CallFailed(KubetideError):
    """The other end answered a call with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"code {code}: {message}")
        self.code = code


class UnknownMethod(KubetideError):
    """A call names a method that is not served."""


class MuxConnection:
    """One socket: serves calls on one logical connection and makes calls on the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._buffers = {PLUGIN_SERVICE: bytearray(), RUNTIME_SERVICE: bytearray()}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Read until the connection ends; each request is answered in its own task."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    connection, payload = await self._read_frame()
                    for stream, kind, body in self._messages(connection, payload):
                        if connection == PLUGIN_SERVICE and kind == REQUEST:
                            group.create_task(self._serve(stream, body))
                        elif connection == RUNTIME_SERVICE and kind == RESPONSE:
                            waiting = self._waiting.pop(stream, None)
                            if waiting is not None and not waiting.done():
                                waiting.set_result(body)
        except* (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionClosed("the connection was closed during a call"))
            self._waiting.clear()
            self.close()

    async def call(self, service: str, method: str, payload: bytes, *, timeout: float = 5.0) -> bytes:
        """Call a method of the other end and return the payload of its answer."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = waiting
        request = pb.Request(service=service, method=method, payload=payload, timeout_nano=int(timeout * 1e9))
        try:
            await self._send(RUNTIME_SERVICE, stream, REQUEST, request.SerializeToString())
            async with asyncio.timeout(timeout):
                body = await waiting
        except TimeoutError as error:
            raise Unavailable(f"no answer to {method} within {timeout} s") from error
        except OSError as error:
            raise ConnectionClosed(f"calling {method}: {error}") from error
        finally:
            self._waiting.pop(stream, None)
        try:
            response = pb.Response.FromString(body)
        except DecodeError as error:
            raise CallFailed(INTERNAL, f"the answer to {method} cannot be read") from error
        if response.status.code:
            raise CallFailed(response.status.code, response.status.message)
        return response.payload

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()

    async def _serve(self, stream: int, body: bytes) -> None:
        response = pb.Response()
        try:
            request = pb.Request.FromString(body)
            response.payload = await self._handler(request.service, request.method, request.payload)
        except UnknownMethod as error:
            response.status.code, response.status.message = UNIMPLEMENTED, str(error)
        except DecodeError as error:
            response.status.code, response.status.message = INVALID_ARGUMENT, f"the request cannot be read: {error}"
        except KubetideError as error:
            response.status.code, response.status.message = INTERNAL, str(error)
        try:
            await self._send(PLUGIN_SERVICE, stream, RESPONSE, response.SerializeToString())
        except OSError:
            self.close()

    async def _send(self, connection: int, stream: int, kind: int, body: bytes) -> None:
        message = _HEADER.pack(len(body), stream, kind, 0) + body
        async with self._lock:
            for start in range(0, len(message), MAX_FRAME):
                part = message[start : start + MAX_FRAME]
                self._writer.write(_FRAME.pack(connection, len(part)) + part)
            await self._writer.drain()

    async def _read_frame(self) -> tuple[int, bytes]:
        connection, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
        if connection not in self._buffers or length > MAX_MESSAGE + _HEADER.size:
            raise ConnectionResetError(f"a frame of {length} bytes on connection {connection} is none of NRI's")
        return connection, await self._reader.readexactly(length)

    def _messages(self, connection: int, payload: bytes) -> list[tuple[int, int, bytes]]:
        buffer = self._buffers[connection]
        buffer += payload
        found: list[tuple[int, int, bytes]] = []
        while len(buffer) >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(buffer)
            if length > MAX_MESSAGE:
                raise ConnectionResetError(f"a message of {length} bytes is too long")
            end = _HEADER.size + length
            if len(buffer) < end:
                break
            found.append((stream, kind, bytes(buffer[_HEADER.size : end])))
            del buffer[:end]
        return found
