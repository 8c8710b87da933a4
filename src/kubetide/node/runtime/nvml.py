"""GPUs through NVIDIA's management library, loaded at run time; no package and no GPU is needed to import this.

A package or library that is missing, or a machine without a usable device, means that nothing is reported. A device
counts a process only if both of its lists know it: who computes, and how busy each process keeps the multiprocessors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kubetide.errors import KubetideError
from kubetide.log import get_logger

log = get_logger("node.gpu")

HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68})
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


class Nvml:
    """The management library of NVIDIA's driver, through the package `nvidia-ml-py`."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handles: dict[int, Any] = {}
        self._devices: list[GpuDevice] = []
        self._unhealthy: set[str] = set()
        self._events: Any = None
        self._call("nvmlInit")
        for index in range(self._call("nvmlDeviceGetCount")):
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
            device = self._describe(handle)
            self._handles[device.minor] = handle
            self._devices.append(device)
        if not self._devices:
            raise NvmlError("no GPU")
        self._listen()

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, name)(*arguments)
        except (self._library.NVMLError, AttributeError) as error:
            raise NvmlError(f"{name} failed: {error}") from error

    def _describe(self, handle: Any) -> GpuDevice:
        return GpuDevice(
            uuid=_text(self._call("nvmlDeviceGetUUID", handle)),
            minor=self._call("nvmlDeviceGetMinorNumber", handle),
            memory_total=int(self._call("nvmlDeviceGetMemoryInfo", handle).total),
            bus_id=_bus_id(_text(self._call("nvmlDeviceGetPciInfo", handle).busId)),
            name=_text(self._call("nvmlDeviceGetName", handle)),
        )

    def devices(self) -> Sequence[GpuDevice]:
        """Return the GPUs found at start."""
        return tuple(self._devices)

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return _text(self._call("nvmlSystemGetDriverVersion"))

    def processes(self, minor: int) -> Sequence[ProcessUsage]:
        """Return the processes that both lists of a GPU know."""
        handle = self._handles[minor]
        computing = self._call("nvmlDeviceGetComputeRunningProcesses", handle)
        memory = {one.pid: int(one.usedGpuMemory or 0) for one in computing}
        busy = {one.pid: int(one.smUtil) for one in self._call("nvmlDeviceGetProcessUtilization", handle, _SINCE)}
        return tuple(ProcessUsage(pid, busy[pid], memory[pid]) for pid in sorted(memory.keys() & busy.keys()))

    def _listen(self) -> None:
        """Register for critical errors; a GPU that cannot register counts as unhealthy."""
        try:
            self._events = self._call("nvmlEventSetCreate")
        except NvmlError as error:
            log.info("GPU health not followed", error=str(error))
            return
        for device in self._devices:
            try:
                self._call("nvmlDeviceRegisterEvents", self._handles[device.minor], _XID_EVENT, self._events)
            except NvmlError:
                self._unhealthy.add(device.uuid)

    def unhealthy(self) -> frozenset[str]:
        """Take in events that are waiting; return the GPUs that had a critical error. They do not recover."""
        while self._events is not None:
            try:
                data = self._call("nvmlEventSetWait_v2", self._events, 0)
            except NvmlError:
                break  # no event is waiting
            if data.eventType == _XID_EVENT and int(data.eventData) not in HARMLESS_XIDS:
                self._unhealthy.update(self._affected(data.device))
        return frozenset(self._unhealthy)

    def _affected(self, handle: Any) -> list[str]:
        try:
            return [_text(self._call("nvmlDeviceGetUUID", handle))]
        except NvmlError:
            return [device.uuid for device in self._devices]  # an error that names no GPU may be any of them

    def close(self) -> None:
        """Give the library back."""
        self._call("nvmlShutdown")


def _text(value: str | bytes) -> str:
    """Return a text of the library; older versions of the package give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _bus_id(text: str) -> str:
    """Return a bus id as sysfs writes it: lower case, four digits of domain."""
    text = text.split("\0")[0].lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-4:]}{colon}{rest}" if len(domain) > 4 else text


def open_gpus() -> Nvml | None:
    """Return the GPUs of this machine, or None where there are none to be seen."""
    try:
        import pynvml  # the extra `gpu`: only where GPUs are looked for
    except ImportError:
        log.info("no GPUs", reason="the package nvidia-ml-py is not installed (extra gpu)")
        return None
    try:
        return Nvml(pynvml)
    except NvmlError as error:
        log.info("no GPUs", reason=str(error))
        return None
