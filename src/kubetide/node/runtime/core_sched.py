"""Core scheduling through prctl: read, create and share cookies, and carry out what the hooks plan.

Sharing a cookie changes the calling thread first (SHARE_FROM) and then gives it on (SHARE_TO). Both run in a thread
that ends right after, so that the agent itself never carries a foreign cookie; its own cookie is 0, and giving 0 on
is how cookies are taken off.
"""

import ctypes
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from kubetide.errors import KubetideError
from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.core.outcomes import CookieOutcome
from kubetide.node.core.plan import ClearCookies, CookieOperation, CreateCookie, ShareCookie
from kubetide.node.host.protocol import Host

PR_SCHED_CORE = 62
GET, CREATE, SHARE_TO, SHARE_FROM = 0, 1, 2, 3
THREAD, THREAD_GROUP = 0, 1


class CookieError(KubetideError):
    """The kernel refused to read or set a cookie."""


class CookieKernel(Protocol):
    """The kernel's core scheduling calls."""

    def get(self, pid: int) -> int:
        """Return the cookie of a process; raise CookieError when it cannot be read."""
        ...

    def create(self, pid: int) -> None:
        """Give the thread group of a process a new cookie; raise CookieError when it cannot."""
        ...

    def share(self, source: int, pids: Sequence[int]) -> str:
        """Give processes the cookie of another one, or none for source 0; return why it failed for some of them."""
        ...


def read_cookies(kernel: CookieKernel, pids: Iterable[int]) -> dict[int, int]:
    """Return the cookies of processes; one that cannot be read is left out."""
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(CookieError):
            found[pid] = kernel.get(pid)
    return found


def apply_cookies(kernel: CookieKernel, operations: Iterable[CookieOperation]) -> tuple[CookieOutcome, ...]:
    """Carry out operations in order; return for each what its processes carry afterwards."""
    outcomes = []
    for operation in operations:
        try:
            reason = _apply(kernel, operation)
        except CookieError as error:
            reason = str(error)
        outcomes.append(CookieOutcome(operation, read_cookies(kernel, operation.pids), reason))
    return tuple(outcomes)


def _apply(kernel: CookieKernel, operation: CookieOperation) -> str:
    match operation:
        case CreateCookie(first=first, others=others):
            kernel.create(first)
            return kernel.share(first, others) if others else ""
        case ShareCookie(source=source, cookie=cookie, pids=pids):
            # The number of a process that ended may be another one's by now, and its cookie none of ours.
            if kernel.get(source) != cookie:
                return f"process {source} does not have the cookie of its group any more"
            return kernel.share(source, pids)
        case ClearCookies(pids=pids):
            return kernel.share(0, pids)


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

    def share(self, source: int, pids: Sequence[int]) -> str:
        """Give processes the cookie of another one, or none for source 0; return why it failed for some of them."""
        problems: list[str] = []

        def work() -> None:
            try:
                if source:
                    self._call(SHARE_FROM, source, THREAD, 0)
            except CookieError as error:
                problems.append(str(error))
                return
            for pid in pids:
                try:
                    self._call(SHARE_TO, pid, THREAD_GROUP, 0)
                except CookieError as error:
                    problems.append(str(error))

        thread = threading.Thread(target=work, name="core-sched")
        thread.start()
        thread.join()
        return "; ".join(problems)

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

    Mainline kernels have none: there the calls themselves show it.
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
