"""GPU environment: containers see the GPUs that the scheduler allocated to their pod, by minor number."""

from collections.abc import Mapping

from kubetide.api.qos.qos import device_allocations

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


def visible_devices(annotations: Mapping[str, str] | None) -> str | None:
    """Return the minors of the pod's GPUs in their order, None when it has none; raise DecodeError."""
    devices = (device_allocations(annotations) or {}).get("gpu")
    return ",".join(str(device.minor) for device in devices) if devices else None
