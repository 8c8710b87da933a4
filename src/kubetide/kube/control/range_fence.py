"""A fence that knows the range of every write: that of its namespace, or of its own name where it is in none."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from kubetide.kube.client.transport import Transport
from kubetide.kube.control.core.ranges import range_of
from kubetide.kube.control.leader_election import FencedTransport


class _Named(msgspec.Struct):
    name: str = ""


class _Body(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


class RangeFence(FencedTransport):
    """Lets a write through only while this replica owns its range, and knows which are under way."""

    def __init__(self, inner: Transport, may_write: Callable[[int], bool]) -> None:
        super().__init__(inner, lambda path: may_write(range_of_write(path)))
        self._may_write_to = may_write
        self._under_way: Counter[int] = Counter()
        self._ended = asyncio.Event()

    def _allows(self, path: str, body: bytes | None) -> bool:
        return self._may_write_to(range_of_write(path, body))

    @contextmanager
    def _writing(self, path: str, body: bytes | None) -> Iterator[None]:
        number = range_of_write(path, body)
        self._under_way[number] += 1
        try:
            yield
        finally:
            self._under_way[number] -= 1
            self._ended.set()

    async def idle(self, ranges: Iterable[int]) -> None:
        """Wait until no write to these ranges is under way."""
        while any(self._under_way[number] for number in ranges):
            self._ended.clear()
            await self._ended.wait()


def range_of_write(path: str, body: bytes | None = None) -> int:
    """Return the range of what a write is about; an object that is being created is named in the body."""
    _, found, rest = path.partition("/namespaces/")
    if found:
        return range_of(rest.partition("/")[0])
    # /api/v1/nodes/name/status, /apis/group/version/plural/name
    parts = path.strip("/").split("/")
    resource = parts[2:] if parts[0] == "api" else parts[3:]
    return range_of(resource[1] if len(resource) > 1 else _named(body))


def _named(body: bytes | None) -> str:
    try:
        return msgspec.json.decode(body or b"{}", type=_Body).metadata.name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
