"""What the agent needs from a machine: text files, directories, commands.

Paths are absolute as the agent sees them (the roots of `host.layout` are already in front). Failures are `OSError`
with the kernel's errno: a cgroup that is gone is `FileNotFoundError` (or ENODEV from a descriptor that was kept open),
a value the kernel refuses is EINVAL. The simulated node implements the same shape.
"""

import errno
from collections.abc import Sequence
from typing import Protocol


class Host(Protocol):
    """The file system of a node."""

    def read(self, path: str) -> str:
        """Return the whole text of a file."""
        ...

    def write(self, path: str, value: str) -> None:
        """Write `value` with one system call, as kernel files want it."""
        ...

    def list_dirs(self, path: str) -> list[str]:
        """Return the names of the directories directly below `path`."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...


class Commands(Protocol):
    """Runs the few tools whose answers have no file."""

    def run(self, command: Sequence[str], *, timeout: float = 5.0) -> str:
        """Return what the command prints; raise OSError when it is missing, fails or takes too long."""
        ...


_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ESRCH})


def is_gone(error: OSError) -> bool:
    """Return whether an error means that the cgroup or file does not exist (any more)."""
    return error.errno in _GONE or isinstance(error, FileNotFoundError)
