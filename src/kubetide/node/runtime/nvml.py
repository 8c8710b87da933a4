"""GPUs through NVIDIA's management library, loaded at run time; no package and no GPU is needed to import this.

A library that is missing, or a machine without a usable device, means that nothing is reported. A device counts a
process only if both of its lists know it: who computes, and how busy each process keeps the multiprocessors.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kubetide.errors import KubetideError
from kubetide.log import get_logger

log = get_logger("node.gpu")

LIBRARY = "libnvidia-ml.so.1"
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68})
_SUCCESS = 0
_INSUFFICIENT_SIZE = 7
_SINCE = 1024
_XID_EVENT = 8


class NvmlError(KubetideError):
    """The library cannot be used or a call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A GPU as the library describes it."""

    uuid: str
    minor: int
    memory_total: int
    bus_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process uses of one GPU: percent of its multiprocessors, bytes of its memory."""

    pid: int
    busy_percent: int
    memory_bytes: int


class GpuSource(Protocol):
    """Where GPU facts and usage come from."""

    def devices(self) -> Sequence[GpuDevice]:
        """Return the GPUs of the machine."""
        ...

    def processes(self, minor: int) -> Sequence[ProcessUsage]:
        """Return the processes of a GPU; raise NvmlError."""
        ...

    def driver_version(self) -> str:
        """Return the version of the driver."""
        ...

    def unhealthy(self) -> frozenset[str]:
        """Return the uuids of GPUs that had a critical error."""
        ...


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Pci(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilization(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("at", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


class _EventData(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The management library of NVIDIA's driver."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"{library} is not installed") from error
        self._call("nvmlInit_v2")
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._devices: list[GpuDevice] = []
        self._unhealthy: set[str] = set()
        self._events: ctypes.c_void_p | None = None
        for index in range(self._count()):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            device = self._describe(handle)
            self._handles[device.minor] = handle
            self._devices.append(device)
        if not self._devices:
            raise NvmlError("no GPU")
        self._listen()

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError as error:
            raise NvmlError(f"the library has no {name}") from error

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._function(name)(*arguments)
        if code != _SUCCESS:
            raise NvmlError(f"{name} failed with code {code}")

    def _count(self) -> int:
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return count.value

    def _text(self, name: str, handle: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(96)
        self._call(name, handle, buffer, ctypes.c_uint(96))
        return buffer.value.decode("utf-8", "replace")

    def _describe(self, handle: ctypes.c_void_p) -> GpuDevice:
        minor, memory, pci = ctypes.c_uint(), _Memory(), _Pci()
        self._call("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        self._call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
        return GpuDevice(
            uuid=self._text("nvmlDeviceGetUUID", handle),
            minor=minor.value,
            memory_total=int(memory.total),
            bus_id=_bus_id(bytes(pci.bus_id).decode("ascii", "replace")),
            name=self._text("nvmlDeviceGetName", handle),
        )

    def devices(self) -> Sequence[GpuDevice]:
        """Return the GPUs found at start."""
        return tuple(self._devices)

    def driver_version(self) -> str:
        """Return the version of the driver."""
        buffer = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", buffer, ctypes.c_uint(96))
        return buffer.value.decode("utf-8", "replace")

    def processes(self, minor: int) -> Sequence[ProcessUsage]:
        """Return the processes that both lists of a GPU know."""
        handle = self._handles[minor]
        memory = {one.pid: int(one.used_memory) for one in self._list(_Process, _COMPUTE, handle)}
        busy: dict[int, int] = {}
        for one in self._list(_Utilization, "nvmlDeviceGetProcessUtilization", handle, ctypes.c_ulonglong(_SINCE)):
            busy[one.pid] = int(one.sm)
        return tuple(ProcessUsage(pid, busy[pid], memory[pid]) for pid in sorted(memory.keys() & busy.keys()))

    def _list(self, kind: Any, name: str, handle: ctypes.c_void_p, *more: Any) -> list[Any]:
        count = ctypes.c_uint(64)
        for _ in range(4):
            items = (kind * count.value)()
            # The utilization call takes the array before the count, the other one after it.
            arguments = (items, ctypes.byref(count), *more) if more else (ctypes.byref(count), items)
            code = self._function(name)(handle, *arguments)
            if code == _SUCCESS:
                return list(items[: count.value])
            if code != _INSUFFICIENT_SIZE:
                raise NvmlError(f"{name} failed with code {code}")
            count = ctypes.c_uint(max(count.value, 64) * 2)
        raise NvmlError(f"{name} keeps asking for more room")

    def _listen(self) -> None:
        """Register for critical errors; a GPU that cannot register counts as unhealthy."""
        events = ctypes.c_void_p()
        try:
            self._call("nvmlEventSetCreate", ctypes.byref(events))
        except NvmlError as error:
            log.info("GPU health not followed", error=str(error))
            return
        self._events = events
        for device in self._devices:
            try:
                self._call(
                    "nvmlDeviceRegisterEvents", self._handles[device.minor], ctypes.c_ulonglong(_XID_EVENT), events
                )
            except NvmlError:
                self._unhealthy.add(device.uuid)

    def unhealthy(self) -> frozenset[str]:
        """Take in events that are waiting; return the GPUs that had a critical error. They do not recover."""
        while self._events is not None:
            data = _EventData()
            code = self._function("nvmlEventSetWait_v2")(self._events, ctypes.byref(data), ctypes.c_uint(0))
            if code != _SUCCESS:
                break
            if data.kind == _XID_EVENT and int(data.data) not in HARMLESS_XIDS:
                self._unhealthy.update(self._affected(data.device))
        return frozenset(self._unhealthy)

    def _affected(self, handle: int | None) -> list[str]:
        try:
            return [self._text("nvmlDeviceGetUUID", ctypes.c_void_p(handle))]
        except NvmlError:
            return [device.uuid for device in self._devices]  # an error that names no GPU may be any of them

    def close(self) -> None:
        """Give the library back."""
        self._function("nvmlShutdown")()


_COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"


def _bus_id(text: str) -> str:
    """Return a bus id as sysfs writes it: lower case, four digits of domain."""
    text = text.split("\0")[0].lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-4:]}{colon}{rest}" if len(domain) > 4 else text


def open_gpus(library: str = LIBRARY) -> Nvml | None:
    """Return the GPUs of this machine, or None where there are none to be seen."""
    try:
        return Nvml(library)
    except NvmlError as error:
        log.info("no GPUs", reason=str(error))
        return None
