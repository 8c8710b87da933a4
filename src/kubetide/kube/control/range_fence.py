"""A fence that knows the range of every write: that of its namespace, or of its own name where it is in none.

In a namespace that is split a path does not tell whose range it is: the scale of a Deployment is written for an
autoscaler. Who writes there says for which object (`acting_for`), and what is written for nobody does not pass.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from kubetide.kube.client.transport import Transport
from kubetide.kube.control.core.ranges import WHOLE_NAMESPACES, Division, range_of
from kubetide.kube.control.leader_election import FencedTransport


class _Named(msgspec.Struct):
    name: str = ""


class _Body(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


_ACTING_FOR: ContextVar[str] = ContextVar("acting_for", default="")
NOBODYS = -1
"""The range of a write in a split namespace that is for no object."""


@contextmanager
def acting_for(uid: str) -> Iterator[None]:
    """Set the object that writes are for, in this task and those that it starts."""
    token = _ACTING_FOR.set(uid)
    try:
        yield
    finally:
        _ACTING_FOR.reset(token)


class RangeFence(FencedTransport):
    """Lets a write through only while this replica owns its range, and knows which are under way."""

    def __init__(
        self, inner: Transport, may_write: Callable[[int], bool], division: Division = WHOLE_NAMESPACES
    ) -> None:
        super().__init__(inner, lambda path: may_write(self._range(path, None)))
        self._may_write_to = may_write
        self._division = division
        self._under_way: Counter[int] = Counter()
        self._ended = asyncio.Event()

    def _allows(self, path: str, body: bytes | None) -> bool:
        return self._may_write_to(self._range(path, body))

    def _range(self, path: str, body: bytes | None) -> int:
        namespace, uid = namespace_of(path), _ACTING_FOR.get()
        if namespace not in self._division.split:
            return range_of_write(path, body)
        return self._division.range_of(namespace, uid) if uid else NOBODYS

    @contextmanager
    def _writing(self, path: str, body: bytes | None) -> Iterator[None]:
        number = self._range(path, body)
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


def namespace_of(path: str) -> str:
    """Return the namespace in a path; empty without one."""
    return path.partition("/namespaces/")[2].partition("/")[0]


def range_of_write(path: str, body: bytes | None = None) -> int:
    """Return the range of what a write is about; an object that is being created is named in the body."""
    if namespace := namespace_of(path):
        return range_of(namespace)
    # /api/v1/nodes/name/status, /apis/group/version/plural/name
    parts = path.strip("/").split("/")
    resource = parts[2:] if parts[0] == "api" else parts[3:]
    return range_of(resource[1] if len(resource) > 1 else _named(body))


def _named(body: bytes | None) -> str:
    try:
        return msgspec.json.decode(body or b"{}", type=_Body).metadata.name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
