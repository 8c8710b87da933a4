"""GPU environment: containers see the GPUs that the scheduler allocated to their pod, by minor number."""

from collections.abc import Mapping

from kubetide.api.codec import decode_folded
from kubetide.api.meta import ApiObject

DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


class _Device(ApiObject, frozen=True, kw_only=True, gc=False):
    minor: int = 0


class _Allocations(ApiObject, frozen=True, kw_only=True, gc=False):
    gpu: tuple[_Device, ...] | None = None


def visible_devices(annotations: Mapping[str, str] | None) -> str | None:
    """Return the minors of the pod's GPUs in their order, None when it has none."""
    text = (annotations or {}).get(DEVICE_ALLOCATED)
    if not text:
        return None
    devices = decode_folded(text, _Allocations, what=DEVICE_ALLOCATED).gpu
    return ",".join(str(device.minor) for device in devices) if devices else None
