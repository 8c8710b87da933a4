"""The real machine: kernel files through descriptors that stay open.

Reading a cgroup file by `pread` on a kept descriptor costs a tenth of opening it each time. A descriptor of a removed
cgroup answers ENODEV, which is also how its removal is noticed; it is then closed. At most `max_open` descriptors are
kept, the least recently used one is closed first. A process that is out of descriptors keeps half as many from then
on: reading slowly is better than not at all, and others in the process need some too.
"""

import ctypes
import errno
import os
import resource
import subprocess
from collections import OrderedDict
from collections.abc import Sequence

from kubetide.log import get_logger

log = get_logger("node.host")

_CHUNK = 8192
_END_SECONDS = 1.0
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_CGROUP2_MAGIC = 0x63677270
_CACHED_ROOTS = ("/sys/fs/cgroup", "/host-cgroup", "/proc/stat", "/proc/meminfo")


class LinuxHost:
    """Files and commands of the machine the agent runs on."""

    def __init__(self, *, max_open: int = 16384, nsenter: str = "", keep_open: Sequence[str] = _CACHED_ROOTS) -> None:
        self._open: OrderedDict[str, int] = OrderedDict()
        self._max_open = _raise_limit(max_open)
        self._nsenter = nsenter
        self._keep = tuple(keep_open)
        self._unended: dict[str, subprocess.Popen[str]] = {}
        self.reads = 0

    def read(self, path: str) -> str:
        """Return the text of a file."""
        descriptor = self._open.get(path)
        if descriptor is None:
            if not path.startswith(self._keep):
                with open(self._opened(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                    return file.read()
            descriptor = self._keep_open(path)
        else:
            self._open.move_to_end(path)
        try:
            return self._pread(descriptor)
        except OSError as error:
            self.forget(path)
            if error.errno != errno.ENODEV:
                raise
        # The cgroup is gone; one of the same name may have taken its place.
        descriptor = self._keep_open(path)
        try:
            return self._pread(descriptor)
        except OSError:
            self.forget(path)
            raise

    def _pread(self, descriptor: int) -> str:
        self.reads += 1
        data = os.pread(descriptor, _CHUNK, 0)
        if len(data) < _CHUNK:
            return data.decode("utf-8", "replace")
        parts = [data]
        offset = len(data)
        while data := os.pread(descriptor, _CHUNK, offset):
            parts.append(data)
            offset += len(data)
        return b"".join(parts).decode("utf-8", "replace")

    def _keep_open(self, path: str) -> int:
        descriptor = self._opened(path, os.O_RDONLY)
        self._open[path] = descriptor
        self._close_oldest()
        return descriptor

    def _opened(self, path: str, flags: int) -> int:
        """Open a file; where no descriptor is left, give back some of those that are kept and try once more."""
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._open:
                raise
        self._max_open = max(len(self._open) // 2, 1)
        self._close_oldest()
        log.warning("out of file descriptors: fewer kernel files stay open", kept=self._max_open)
        return os.open(path, flags | os.O_CLOEXEC)

    def _close_oldest(self) -> None:
        while len(self._open) > self._max_open:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)

    def forget(self, path: str) -> None:
        """Close the descriptor of a file."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def sweep(self) -> int:
        """Close descriptors of files that no longer exist; return how many."""
        gone = [path for path in self._open if not os.path.exists(path)]
        for path in gone:
            self.forget(path)
        return len(gone)

    def write(self, path: str, value: str) -> None:
        """Write a value with one system call."""
        descriptor = self._opened(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def list_dirs(self, path: str) -> list[str]:
        """Return the names of the directories directly below a path; links to directories count."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return os.path.exists(path)

    def real_path(self, path: str) -> str:
        """Return a path with all links resolved."""
        return os.path.realpath(path)

    def run(self, command: Sequence[str], *, timeout: float = 5.0) -> str:
        """Run a tool, in the host's mount namespace where the agent lives in a container."""
        tool = command[0]
        before = self._unended.get(tool)
        if before is not None and before.poll() is None:
            # Waiting for a disk, a process cannot even be killed; another one would only wait beside it.
            raise OSError(errno.EBUSY, f"{tool} failed: process {before.pid} of an earlier run still hangs")
        self._unended.pop(tool, None)
        process = subprocess.Popen(
            [*self._prefix(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        try:
            output, complaint = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            self._end(tool, process)
            raise OSError(errno.ETIMEDOUT, f"{tool} failed: no answer within {timeout:g} s") from error
        if process.returncode != 0:
            reason = complaint.strip().partition("\n")[0] or "no reason given"
            raise OSError(errno.EIO, f"{tool} failed with status {process.returncode}: {reason}")
        return output

    def _end(self, tool: str, process: "subprocess.Popen[str]") -> None:
        """Kill a tool that takes too long, and wait for its end only as long as an end takes."""
        process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._unended[tool] = process

    def _prefix(self) -> list[str]:
        return ["nsenter", f"--mount={self._nsenter}"] if self._nsenter else []

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _raise_limit(wanted: int) -> int:
    """Raise the limit of open files as far as allowed; return how many descriptors may be kept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted + 512 if hard == resource.RLIM_INFINITY else min(wanted + 512, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (OSError, ValueError) as error:
            log.warning("limit of open files not raised", wanted=target, error=str(error))
            target = soft
    return max(min(wanted, target - 256), 64)


class _StatFs(ctypes.Structure):
    _fields_ = (("type", ctypes.c_long), ("rest", ctypes.c_long * 31))


def cgroup_version(root: str) -> int:
    """Return 2 if the root is a unified hierarchy, else 1; a hybrid mount is 1. Raise OSError if it is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = _StatFs()
    if libc.statfs(os.fsencode(root.rstrip("/") or "/"), ctypes.byref(buffer)) != 0:
        number = ctypes.get_errno()
        if number == errno.ENOENT and _in_user_namespace():
            return 1
        raise OSError(number, os.strerror(number), root)
    return 2 if buffer.type & 0xFFFFFFFF == _CGROUP2_MAGIC else 1


def _in_user_namespace() -> bool:
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            words = file.readline().split()
    except OSError:
        return False
    return words != ["0", "0", "4294967295"]
