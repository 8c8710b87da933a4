"""Which samples there are: every kind of metric and the properties that distinguish its series.

A sample must have exactly the properties of its kind; a query may give a part of them.
"""

from collections.abc import Mapping

from kubetide.errors import InvalidInput

NODE_CPU = "node_cpu_usage"
NODE_MEMORY = "node_memory_usage"
NODE_MEMORY_WITH_PAGE_CACHE = "node_memory_usage_with_page_cache"
NODE_GPU_CORE = "node_gpu_core_usage"
NODE_GPU_MEMORY = "node_gpu_memory_usage"
NODE_GPU_MEMORY_TOTAL = "node_gpu_memory_total"
SYS_CPU = "sys_cpu_usage"
SYS_MEMORY = "sys_memory_usage"
NUMA_CPU = "numa_node_cpu_usage"
NUMA_MEMORY = "numa_node_memory_usage"
NUMA_SYS_MEMORY = "numa_node_sys_memory_usage"
NODE_BE = "node_be"
POD_CPU = "pod_cpu_usage"
POD_MEMORY = "pod_memory_usage"
POD_MEMORY_WITH_PAGE_CACHE = "pod_memory_usage_with_page_cache"
POD_THROTTLED = "pod_cpu_throttled"
POD_GPU_CORE = "pod_gpu_core_usage"
POD_GPU_MEMORY = "pod_gpu_memory_usage"
CONTAINER_CPU = "container_cpu_usage"
CONTAINER_MEMORY = "container_memory_usage"
CONTAINER_MEMORY_WITH_PAGE_CACHE = "container_memory_usage_with_page_cache"
CONTAINER_THROTTLED = "container_cpu_throttled"
CONTAINER_GPU_CORE = "container_gpu_core_usage"
CONTAINER_GPU_MEMORY = "container_gpu_memory_usage"
HOST_APP_CPU = "host_application_cpu_usage"
HOST_APP_MEMORY = "host_application_memory_usage"
HOST_APP_MEMORY_WITH_PAGE_CACHE = "host_application_memory_usage_with_page_cache"
CONTAINER_CPI = "container_cpi"
CONTAINER_PSI = "container_psi"
CONTAINER_PSI_CPU_FULL = "container_psi_cpu_full_supported"
POD_PSI = "pod_psi"
POD_PSI_CPU_FULL = "pod_psi_cpu_full_supported"
NODE_MEMORY_HOT = "node_memory_with_hot_page_usage"
NODE_MEMORY_COLD = "node_memory_cold_page_size"
POD_MEMORY_HOT = "pod_memory_with_hot_page_usage"
POD_MEMORY_COLD = "pod_memory_cold_page_size"
CONTAINER_MEMORY_HOT = "container_memory_with_hot_page_usage"
CONTAINER_MEMORY_COLD = "container_memory_cold_page_size"
HOST_APP_MEMORY_HOT = "host_application_memory_with_hot_page_usage"
HOST_APP_MEMORY_COLD = "host_application_memory_cold_page_size"

NUMA_NODE = "numa_node_id"
POD_UID = "pod_uid"
CONTAINER_ID = "container_id"
HOST_APP_NAME = "host_app_name"
GPU_MINOR = "gpu_minor"
GPU_UUID = "gpu_device_uuid"

BE_CPU_USED = {"be_resource": "cpu", "be_allocation": "usage"}
"""The properties of what best-effort work uses, in milli-cores."""

_GPU = (GPU_MINOR, GPU_UUID)
_PSI = ("psi_resource", "psi_precision", "psi_degree")

PROPERTIES: dict[str, frozenset[str]] = {
    kind: frozenset(properties)
    for kinds, properties in (
        ((NODE_CPU, NODE_MEMORY, NODE_MEMORY_WITH_PAGE_CACHE, SYS_CPU, SYS_MEMORY), ()),
        ((NODE_MEMORY_HOT, NODE_MEMORY_COLD), ()),
        ((NODE_GPU_CORE, NODE_GPU_MEMORY, NODE_GPU_MEMORY_TOTAL), _GPU),
        ((NUMA_CPU, NUMA_MEMORY, NUMA_SYS_MEMORY), (NUMA_NODE,)),
        ((NODE_BE,), ("be_resource", "be_allocation")),
        ((POD_CPU, POD_MEMORY, POD_MEMORY_WITH_PAGE_CACHE, POD_THROTTLED), (POD_UID,)),
        ((POD_MEMORY_HOT, POD_MEMORY_COLD, POD_PSI_CPU_FULL), (POD_UID,)),
        ((POD_GPU_CORE, POD_GPU_MEMORY), (POD_UID, *_GPU)),
        ((CONTAINER_CPU, CONTAINER_MEMORY, CONTAINER_MEMORY_WITH_PAGE_CACHE), (CONTAINER_ID,)),
        ((CONTAINER_THROTTLED, CONTAINER_MEMORY_HOT, CONTAINER_MEMORY_COLD), (CONTAINER_ID,)),
        ((CONTAINER_GPU_CORE, CONTAINER_GPU_MEMORY), (CONTAINER_ID, *_GPU)),
        ((HOST_APP_CPU, HOST_APP_MEMORY, HOST_APP_MEMORY_WITH_PAGE_CACHE), (HOST_APP_NAME,)),
        ((HOST_APP_MEMORY_HOT, HOST_APP_MEMORY_COLD), (HOST_APP_NAME,)),
        ((CONTAINER_CPI,), (POD_UID, CONTAINER_ID, "cpi_resource")),
        ((CONTAINER_PSI,), (POD_UID, CONTAINER_ID, *_PSI)),
        ((CONTAINER_PSI_CPU_FULL,), (POD_UID, CONTAINER_ID)),
        ((POD_PSI,), (POD_UID, *_PSI)),
    )
    for kind in kinds
}


BRIEF = frozenset({CONTAINER_CPU, CONTAINER_MEMORY, CONTAINER_THROTTLED, POD_THROTTLED})
"""Kinds of which only the last moments are looked at. They are most of all series, so memory keeps minutes of them."""
BRIEF_SECONDS = 300.0


class SeriesError(InvalidInput):
    """A sample or query does not fit the kind of metric it names."""


def check_sample(kind: str, properties: Mapping[str, str]) -> None:
    """Raise SeriesError unless the properties are exactly those of the kind."""
    if _known(kind) != properties.keys():
        raise SeriesError(f"needs properties {sorted(_known(kind))}, got {sorted(properties)}", subject=kind)


def check_query(kind: str, properties: Mapping[str, str]) -> None:
    """Raise SeriesError if a property does not belong to the kind."""
    if not properties.keys() <= _known(kind):
        raise SeriesError(f"has properties {sorted(_known(kind))}, got {sorted(properties)}", subject=kind)


def _known(kind: str) -> frozenset[str]:
    try:
        return PROPERTIES[kind]
    except KeyError:
        raise SeriesError("is not a kind of metric", subject=kind) from None
