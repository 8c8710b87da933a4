"""Core scheduling through prctl: read, create and share cookies.

Sharing a cookie changes the calling thread first (SHARE_FROM) and then gives it on (SHARE_TO). Both run in a thread
that ends right after, so that the agent itself never carries a foreign cookie; its own cookie is 0, and giving 0 on
is how cookies are taken off.
"""

import ctypes
import os
import threading
from collections.abc import Sequence

from kubetide.node.core import files
from kubetide.node.core.hooks.core_sched import CookieError
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host

PR_SCHED_CORE = 62
GET, CREATE, SHARE_TO, SHARE_FROM = 0, 1, 2, 3
THREAD, THREAD_GROUP = 0, 1


class PrctlCookies:
    """The kernel of this machine."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def get(self, pid: int) -> int:
        """Return the cookie of a process."""
        cookie = ctypes.c_uint64(0)
        self._call(GET, pid, THREAD, ctypes.addressof(cookie))
        return cookie.value

    def create(self, pid: int) -> None:
        """Give the thread group of a process a new cookie."""
        self._call(CREATE, pid, THREAD_GROUP, 0)

    def share(self, source: int, pids: Sequence[int]) -> list[int]:
        """Give processes the cookie of another one; return those that could not get it."""
        failed: list[int] = []

        def work() -> None:
            try:
                if source:
                    self._call(SHARE_FROM, source, THREAD, 0)
            except CookieError:
                failed.extend(pids)
                return
            for pid in pids:
                try:
                    self._call(SHARE_TO, pid, THREAD_GROUP, 0)
                except CookieError:
                    failed.append(pid)

        thread = threading.Thread(target=work, name="core-sched")
        thread.start()
        thread.join()
        return failed

    def usable(self) -> bool:
        """Return whether the kernel answers at all: it must be built for it and have threads that share a core."""
        try:
            self.get(0)
        except CookieError:
            return False
        return True

    def _call(self, operation: int, pid: int, scope: int, pointer: int) -> None:
        if self._libc.prctl(PR_SCHED_CORE, operation, pid, scope, ctypes.c_void_p(pointer)) != 0:
            code = ctypes.get_errno()
            raise CookieError(f"core scheduling of process {pid}: {os.strerror(code)}")


def enable_core_sched(host: Host, layout: Layout) -> bool:
    """Switch core scheduling on where the kernel has a switch; return whether it has one.

    Mainline kernels have none: there the calls themselves tell.
    """
    try:
        path = layout.system_file(files.SCHED_CORE)
        value = host.read(path).strip()
        if value == "0":
            host.write(path, "1")
        return value in ("0", "1")
    except OSError:
        pass
    try:
        path = layout.system_file(files.SCHED_FEATURES)
        words = host.read(path).split()
        if "NO_CORE_SCHED" in words:
            host.write(path, "CORE_SCHED")
        return "CORE_SCHED" in words or "NO_CORE_SCHED" in words
    except OSError:
        return False
