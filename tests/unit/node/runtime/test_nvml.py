"""GPUs through a stand-in for the vendor's library, built here: no GPU is needed."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubetide.node.runtime.nvml import Nvml, NvmlError, ProcessUsage, open_gpus

STAND_IN = r"""
#include <string.h>
#include <stdio.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char legacy[16]; unsigned int domain, bus, device, id, sub; char bus_id[32]; } pci_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { unsigned int pid; unsigned long long at; unsigned int sm, mem, enc, dec; } utilization_t;
typedef struct { void *device; unsigned long long kind, data; unsigned int gi, ci; } event_t;
static int devices[2] = {0, 1};
static int events = EVENTS;
static int index_of(void *handle) { return *(int *)handle; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **handle) { *handle = &devices[i]; return 0; }
int nvmlDeviceGetMinorNumber(void *h, unsigned int *minor) { *minor = index_of(h); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) { m->total = 16ULL << 30; return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, pci_t *p) { sprintf(p->bus_id, "00000000:3B:0%d.0", index_of(h)); return 0; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned int size) {
    if (h == 0) return 2;
    snprintf(text, size, "GPU-%d", index_of(h)); return 0;
}
int nvmlDeviceGetName(void *h, char *text, unsigned int size) { snprintf(text, size, "NVIDIA Test 9000"); return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "550.1"); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned int *count, process_t *list) {
    if (*count < 100) { *count = 100; return 7; }
    *count = 2;
    list[0].pid = 11; list[0].used = 1000; list[1].pid = 12; list[1].used = 2000;
    return 0;
}
int nvmlDeviceGetProcessUtilization(void *h, utilization_t *list, unsigned int *count, unsigned long long since) {
    if (index_of(h) == 1) return 3;
    *count = 2;
    list[0].pid = 11; list[0].sm = 40; list[1].pid = 99; list[1].sm = 50;
    return since == 1024 ? 0 : 2;
}
int nvmlEventSetCreate(void **set) { *set = &events; return 0; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long kinds, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, event_t *data, unsigned int timeout) {
    if (events == 0) return 10;
    data->device = events == 2 ? (void *)&devices[0] : 0;
    data->kind = 8;
    data->data = events == 3 ? 13 : 79;
    events -= 1;
    return 0;
}
"""


def build(folder: Path, *, count: int = 2, events: int = 0) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: install gcc")
    source = folder / "stand_in.c"
    source.write_text(STAND_IN.replace("COUNT", str(count)).replace("EVENTS", str(events)))
    library = folder / f"libstandin{count}{events}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[Nvml]:
    found = Nvml(build(tmp_path))
    yield found
    found.close()


def test_devices_are_described_as_sysfs_names_them(nvml: Nvml) -> None:
    first = nvml.devices()[0]
    assert (first.uuid, first.minor, first.memory_total) == ("GPU-0", 0, 16 << 30)
    assert (first.bus_id, first.name) == ("0000:3b:00.0", "NVIDIA Test 9000")
    assert nvml.driver_version() == "550.1"


def test_a_process_counts_only_if_both_lists_know_it(nvml: Nvml) -> None:
    assert nvml.processes(0) == (ProcessUsage(11, 40, 1000),)


def test_a_failing_device_is_an_error_of_that_device(nvml: Nvml) -> None:
    with pytest.raises(NvmlError):
        nvml.processes(1)


def test_critical_errors_mark_a_gpu_for_good_and_harmless_ones_do_not(tmp_path: Path) -> None:
    found = Nvml(build(tmp_path, events=0))
    assert found.unhealthy() == frozenset()
    found = Nvml(build(tmp_path, events=3))
    assert found.unhealthy() == {"GPU-0", "GPU-1"}, "an error that names no GPU may be any of them"
    assert found.unhealthy() == {"GPU-0", "GPU-1"}


def test_a_machine_without_gpu_or_library_has_none(tmp_path: Path) -> None:
    assert open_gpus("libsurely-not-here.so") is None
    assert open_gpus(build(tmp_path, count=0)) is None
