"""GPUs and RDMA devices of a Device object, as resources and labels of its node. Only healthy devices count.

Whole GPUs are counted by their cores, 100 to each. A resource that the healthy GPUs no longer report stays on the
node as long as one GPU is healthy; without any, all of them go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.resources import Amounts, add, format_list, parse_list
from kubetide.api.objects.slo import Device, DeviceInfo
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.slo.core import compat as since
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.node_update import NodeState

GPU = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA = "koordinator.sh/rdma"
_SUMMED = (GPU_CORE, "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio")
_HUAWEI = ("koordinator.sh/huawei-npu-core", "koordinator.sh/huawei-npu-cpu", "koordinator.sh/huawei-npu-dvpp")
GPU_RESOURCES = (GPU, *_SUMMED, GPU_SHARED, *_HUAWEI)
DEVICE_RESOURCES = (*GPU_RESOURCES, RDMA)

VENDOR_LABEL = "node.koordinator.sh/gpu-vendor"
GPU_LABELS = ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Which devices are copied to nodes, and how."""

    gpus: bool = True
    rdma: bool = True
    share_count: bool = False
    """Count shared GPUs (gate EnableSyncGPUSharedResource)."""
    compat: Compat = NEWEST


def with_devices(node: NodeState, device: Device | None, options: DeviceOptions) -> NodeState:
    """Return the node with the resources of its devices."""
    state = _with_gpus(node, device, options) if options.gpus else node
    if options.rdma and options.compat.has(since.RDMA_DEVICES):
        count = len(_healthy(device, "rdma"))
        state = _changed(state, {RDMA: Quantity.of(100 * count)} if count else {}, gone=() if count else (RDMA,))
    return state


def device_labels(device: Device | None, current: Mapping[str, str], options: DeviceOptions) -> dict[str, str]:
    """Return the labels of the GPUs that differ on the node."""
    if device is None or not options.gpus or not _healthy(device, "gpu"):
        return {}
    found = device.metadata.labels or {}
    if not options.compat.has(since.DEVICE_PLUGINS):
        # Both are written together, and one that the Device lacks becomes empty.
        wanted = {name: found.get(name, "") for name in GPU_LABELS}
        return {} if all(current.get(name, "") == text for name, text in wanted.items()) else wanted
    names = (*GPU_LABELS, VENDOR_LABEL) if options.compat.has(since.GPU_VENDOR) else GPU_LABELS
    return {name: found[name] for name in names if name in found and found[name] != current.get(name)}


def _with_gpus(node: NodeState, device: Device | None, options: DeviceOptions) -> NodeState:
    healthy = _healthy(device, "gpu")
    if device is None or not healthy:
        reset = device is None or options.compat.has(since.DEVICES_RESET)
        return _changed(node, {}, gone=GPU_RESOURCES) if reset else node
    vendor = (device.metadata.labels or {}).get(VENDOR_LABEL, "") if options.compat.has(since.GPU_VENDOR) else ""
    total = add(*(parse_list(info.resources) for info in healthy))
    names = (*_SUMMED, *_HUAWEI) if vendor == "huawei" else _SUMMED
    found: Amounts = {name: total[name] for name in names if name in total}
    if vendor in ("", "nvidia"):
        found[GPU] = total.get(GPU_CORE, ZERO)
    if options.share_count:
        found[GPU_SHARED] = Quantity.of(100 * len(healthy))
    return _changed(node, found)


def _healthy(device: Device | None, kind: str) -> list[DeviceInfo]:
    listed = device.spec.devices if device is not None else None
    return [info for info in listed or () if info.type == kind and info.health]


def _changed(node: NodeState, found: Amounts, *, gone: tuple[str, ...] = ()) -> NodeState:
    def part(resources: Mapping[str, Any]) -> dict[str, Any]:
        return {**{name: value for name, value in resources.items() if name not in gone}, **format_list(found)}

    return NodeState(part(node.capacity), part(node.allocatable), node.annotations, node.error)
