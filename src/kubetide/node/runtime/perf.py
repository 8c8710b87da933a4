"""Performance counters per cgroup, straight from the kernel (`perf_event_open`), without any library.

A counter is opened for a cgroup directory on every CPU, runs for a while and is read with the time it was enabled and
the time it really ran: when the hardware has fewer counters than asked for they take turns, and the value is scaled.

    scaled = value * enabled / running
"""

import ctypes
import fcntl
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

HARDWARE = 0

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 112
_READ_FORMAT = 1 | 2  # total time enabled, total time running
_DISABLED = 1
_PID_CGROUP, _CLOEXEC = 4, 8
_ENABLE, _DISABLE = 0x2400, 0x2401


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """What to count."""

    kind: int
    config: int


CYCLES = PerfEvent(HARDWARE, 0)
INSTRUCTIONS = PerfEvent(HARDWARE, 1)

CPI_EVENTS: dict[str, PerfEvent] = {"cycle": CYCLES, "instruction": INSTRUCTIONS}


class Counting(Protocol):
    """Counters that are running."""

    def read(self) -> dict[str, float]:
        """Return what was counted so far, by name."""
        ...

    def close(self) -> None:
        """Stop counting."""
        ...


def scaled(value: int, enabled: int, running: int) -> float:
    """Return a count as if the counter had run all the time."""
    return value / (running / enabled) if enabled and running else float(value)


def _attribute(event: PerfEvent) -> bytes:
    # type, size, config, period, sample_type, read_format, flags; the rest of the structure is zero.
    head = struct.pack("=IIQQQQQ", event.kind, _ATTR_BYTES, event.config, 0, 0, _READ_FORMAT, _DISABLED)
    return head.ljust(_ATTR_BYTES, b"\0")


def _open(event: PerfEvent, cgroup: int, cpu: int) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(f"no performance counters on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    attribute = ctypes.create_string_buffer(_attribute(event), _ATTR_BYTES)
    descriptor: int = libc.syscall(number, attribute, cgroup, cpu, -1, _PID_CGROUP | _CLOEXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


class CgroupCounters:
    """Counters of one cgroup on all CPUs."""

    def __init__(self, directory: str, cpus: Iterable[int], events: Mapping[str, PerfEvent] = CPI_EVENTS) -> None:
        self._descriptors: dict[str, list[int]] = {name: [] for name in events}
        cgroup = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for cpu in cpus:
                for name, event in events.items():
                    self._descriptors[name].append(_open(event, cgroup, cpu))
            for descriptor in self._all():
                fcntl.ioctl(descriptor, _ENABLE, 0)
        except OSError:
            self.close()
            raise
        finally:
            os.close(cgroup)

    def _all(self) -> list[int]:
        return [descriptor for descriptors in self._descriptors.values() for descriptor in descriptors]

    def read(self) -> dict[str, float]:
        """Return the counts over all CPUs."""
        for descriptor in self._all():
            fcntl.ioctl(descriptor, _DISABLE, 0)
        return {
            name: sum(scaled(*struct.unpack("=QQQ", os.read(descriptor, 24))) for descriptor in descriptors)
            for name, descriptors in self._descriptors.items()
        }

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self._all():
            os.close(descriptor)
        self._descriptors = {name: [] for name in self._descriptors}
