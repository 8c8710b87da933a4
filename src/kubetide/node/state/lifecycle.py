"""Pods and containers that come and go, seen in the cgroup tree before anybody reports them.

A directory that appears in a tier and is named like a pod is a new pod; one that appears inside it and is named like
a container is a new container. Everything else is ignored. After a pod directory is watched it is listed once,
because a container may have been faster. Pods that were there at the start are not news. When the kernel lost events
because there were too many, the tiers are compared with what is known.

Events arrive on the loop; directories are listed and watched by the worker that owns the host; handlers are called on
the loop again.
"""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kubetide.api.qos.cgroups import KUBE_QOS_CLASSES
from kubetide.log import get_logger
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host
from kubetide.node.host.worker import Inline, Worker

log = get_logger("node.lifecycle")

_CREATE, _DELETE, _OVERFLOW, _ISDIR = 0x100, 0x200, 0x4000, 0x40000000
_EVENT = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Change:
    """A pod or container directory that appeared or vanished."""

    added: bool
    pod: str
    container: str = ""


Handler = Callable[[Change], None]


class Lifecycle:
    """Turns directory events into changes of pods and containers."""

    def __init__(
        self, host: Host, layout: Layout, watch: Callable[[str], None], unwatch: Callable[[str], None]
    ) -> None:
        self._host = host
        self._layout = layout
        self._watch = watch
        self._unwatch = unwatch
        self._tiers = {layout.watched_dir(kube_qos) for kube_qos in KUBE_QOS_CLASSES}
        self._pods: dict[str, str] = {}
        self._handlers: list[Handler] = []
        self._queue: deque[Change] = deque()

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for every change."""
        self._handlers.append(handler)

    def start(self) -> None:
        """Watch the tiers and the pods that are already there."""
        for tier in sorted(self._tiers):
            try:
                names = self._host.list_dirs(tier)
                self._watch(tier)
            except OSError as error:
                log.info("tier not watched", directory=tier, error=str(error))
                continue
            for name in names:
                pod = self._layout.paths.pod_id(name)
                if pod is not None:
                    self._follow(f"{tier}/{name}", pod)

    def _follow(self, directory: str, pod: str) -> bool:
        try:
            self._watch(directory)
        except OSError:
            return False
        self._pods[directory] = pod
        return True

    def created(self, directory: str, name: str) -> None:
        """A directory `name` appeared in a watched directory."""
        if directory in self._tiers:
            pod = self._layout.paths.pod_id(name)
            place = f"{directory}/{name}"
            if pod is None or place in self._pods:
                return
            self._queue.append(Change(True, pod))
            if self._follow(place, pod):
                try:
                    early = self._host.list_dirs(place)
                except OSError:
                    early = []
                for child in early:
                    self.created(place, child)
            return
        self._container(directory, name, added=True)

    def removed(self, directory: str, name: str) -> None:
        """A directory `name` vanished from a watched directory."""
        if directory in self._tiers:
            pod = self._layout.paths.pod_id(name)
            if pod is None:
                return
            place = f"{directory}/{name}"
            self._pods.pop(place, None)
            self._unwatch(place)
            self._queue.append(Change(False, pod))
            return
        self._container(directory, name, added=False)

    def _container(self, directory: str, name: str, *, added: bool) -> None:
        pod = self._pods.get(directory)
        container = self._layout.paths.container_hash(name)
        if pod is not None and container is not None:
            change = Change(added, pod, container)
            if change not in self._queue:
                self._queue.append(change)

    def compare(self) -> None:
        """Find out which pods came and went while nobody looked."""
        for tier in sorted(self._tiers):
            try:
                names = self._host.list_dirs(tier)
            except OSError:
                continue
            there = {f"{tier}/{name}" for name in names}
            for place in [place for place in self._pods if place.rpartition("/")[0] == tier and place not in there]:
                self.removed(tier, place.rpartition("/")[2])
            for name in names:
                self.created(tier, name)

    def dispatch(self) -> None:
        """Hand the queued changes to all handlers."""
        while self._queue:
            change = self._queue.popleft()
            for handler in self._handlers:
                try:
                    handler(change)
                except Exception:
                    log.exception("lifecycle handler failed", pod=change.pod)


class InotifyWatch:
    """Feeds a `Lifecycle` from the kernel. Without inotify it does nothing and the periodic sync still works."""

    def __init__(self, host: Host, layout: Layout, kernel: Worker | None = None) -> None:
        self._kernel = kernel or Inline()
        self._events: asyncio.Queue[bytes] = asyncio.Queue()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._places: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self.lifecycle = Lifecycle(host, layout, self._add, self._drop)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            log.warning("no inotify: new pods are seen at the next sync")
            await asyncio.Event().wait()
        loop = asyncio.get_running_loop()
        try:
            await self._kernel.call(self.lifecycle.start, "watching pod directories")
            loop.add_reader(self._descriptor, self._readable)
            while True:
                data = await self._events.get()
                await self._kernel.call(partial(self._follow, data), "following pod directories")
                self.lifecycle.dispatch()
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._places.clear()
            self._numbers.clear()

    def _add(self, directory: str) -> None:
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _CREATE | _DELETE)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), directory)
        self._places[number] = directory
        self._numbers[directory] = number

    def _drop(self, directory: str) -> None:
        number = self._numbers.pop(directory, None)
        if number is not None:
            self._places.pop(number, None)
            self._libc.inotify_rm_watch(self._descriptor, number)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._events.put_nowait(os.read(self._descriptor, 65536))

    def _follow(self, data: bytes) -> None:
        position = 0
        while position + _EVENT.size <= len(data):
            number, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = data[position : position + length].split(b"\0", 1)[0].decode("utf-8", "replace")
            position += length
            if mask & _OVERFLOW:
                log.info("directory events were lost, comparing")
                self.lifecycle.compare()
                continue
            directory = self._places.get(number)
            if directory is None or not mask & _ISDIR:
                continue
            if mask & _CREATE:
                self.lifecycle.created(directory, name)
            elif mask & _DELETE:
                self.lifecycle.removed(directory, name)
