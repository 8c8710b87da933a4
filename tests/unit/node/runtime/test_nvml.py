"""GPUs through a stand-in for the vendor's package: no GPU is needed."""

import builtins
from types import SimpleNamespace
from typing import Any

import pytest

from kubetide.node.runtime.nvml import Nvml, NvmlError, ProcessUsage, open_gpus


class StandIn:
    """The calls of the package that are used, for `count` GPUs; `events` are (device, kind, data) still waiting."""

    class NVMLError(Exception):
        """What every call may fail with."""

    def __init__(self, count: int = 2, events: tuple[tuple[int | None, int, int], ...] = ()) -> None:
        self.count = count
        self.events = list(events)
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802 - names of the package
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=16 << 30)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:3B:0{handle}.0".encode())

    def nvmlDeviceGetUUID(self, handle: int | None) -> str:  # noqa: N802
        if handle is None:
            raise self.NVMLError("invalid argument")
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA Test 9000"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.1"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=11, usedGpuMemory=1000), SimpleNamespace(pid=12, usedGpuMemory=2000)]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:  # noqa: N802
        if handle == 1:
            raise self.NVMLError("not supported")
        return [SimpleNamespace(pid=11, smUtil=40), SimpleNamespace(pid=99, smUtil=50)]

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:  # noqa: N802
        return None

    def nvmlEventSetWait_v2(self, events: object, timeout: int) -> Any:  # noqa: N802
        if not self.events:
            raise self.NVMLError("timeout")
        device, kind, data = self.events.pop(0)
        return SimpleNamespace(device=device, eventType=kind, eventData=data)


def test_devices_are_described_as_sysfs_names_them() -> None:
    nvml = Nvml(StandIn())
    first = nvml.devices()[0]
    assert (first.uuid, first.minor, first.memory_total) == ("GPU-0", 0, 16 << 30)
    assert (first.bus_id, first.name) == ("0000:3b:00.0", "NVIDIA Test 9000")
    assert nvml.driver_version() == "550.1"


def test_a_process_counts_only_if_both_lists_know_it() -> None:
    assert Nvml(StandIn()).processes(0) == (ProcessUsage(11, 40, 1000),)


def test_a_failing_device_is_an_error_of_that_device() -> None:
    with pytest.raises(NvmlError):
        Nvml(StandIn()).processes(1)


def test_critical_errors_mark_a_gpu_for_good_and_harmless_ones_do_not() -> None:
    assert Nvml(StandIn(events=((0, 8, 13),))).unhealthy() == frozenset()
    found = Nvml(StandIn(events=((0, 8, 79),)))
    assert found.unhealthy() == {"GPU-0"}
    assert found.unhealthy() == {"GPU-0"}
    assert Nvml(StandIn(events=((None, 8, 79),))).unhealthy() == {"GPU-0", "GPU-1"}, "it names no GPU: any of them"


def test_the_library_is_given_back() -> None:
    library = StandIn()
    Nvml(library).close()
    assert not library.open


def test_a_machine_without_gpu_has_none() -> None:
    with pytest.raises(NvmlError, match="no GPU"):
        Nvml(StandIn(count=0))


def test_without_the_package_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name == "pynvml":
            raise ImportError(name)
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert open_gpus() is None
