"""GPUs of a Device object, as resources and labels of its node. Only healthy ones count."""

from collections.abc import Mapping
from typing import Any

from kubetide.api.objects.resources import Amounts, add, format_list, parse_list
from kubetide.api.objects.slo import Device
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.slo.core.arithmetic import differs
from kubetide.slo.core.node_update import NodeState

GPU = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_RESOURCES = (GPU, GPU_CORE, "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio")
GPU_LABELS = ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")


def gpu_resources(device: Device) -> Amounts:
    """Sum the healthy GPUs; empty if there is none. Whole GPUs are counted by their cores, 100 to each."""
    healthy = [info for info in device.spec.devices or () if info.type == "gpu" and info.health]
    if not healthy:
        return {}
    found = add(*(parse_list(info.resources) for info in healthy))
    total = {name: found[name] for name in GPU_RESOURCES if name in found}
    return {**total, GPU: total.get(GPU_CORE, ZERO)}


def with_gpus(node: NodeState, device: Device | None) -> NodeState:
    """Return the node with its GPUs; without a Device they are taken away, without a healthy GPU all stays."""
    if device is None:
        if not any(name in node.allocatable for name in GPU_RESOURCES):
            return node
        return NodeState(_without(node.capacity), _without(node.allocatable), node.annotations)
    found = gpu_resources(device)
    if not found:
        return node
    texts = format_list(found)
    return NodeState({**node.capacity, **texts}, {**node.allocatable, **texts}, node.annotations)


def gpus_need_write(old: NodeState, new: NodeState, threshold: float) -> bool:
    """Tell whether one of the four resources moved by more than the threshold."""
    before, after = _gpus(old.allocatable), _gpus(new.allocatable)
    return any(differs(before, after, name, threshold) for name in GPU_RESOURCES)


def gpus_differ(old: NodeState, new: NodeState) -> bool:
    """Tell whether anything about the GPUs changed at all."""
    return _gpus(old.allocatable) != _gpus(new.allocatable) or _gpus(old.capacity) != _gpus(new.capacity)


def gpu_labels(device: Device, current: Mapping[str, str]) -> dict[str, str]:
    """Return both labels if one of them differs on the node; a label that the Device lacks becomes empty."""
    wanted = {name: (device.metadata.labels or {}).get(name, "") for name in GPU_LABELS}
    return {} if all(current.get(name, "") == text for name, text in wanted.items()) else wanted


def _gpus(resources: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: parse_quantity(resources[name]) for name in GPU_RESOURCES if name in resources}


def _without(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resources.items() if name not in GPU_RESOURCES}
