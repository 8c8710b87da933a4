"""Block I/O device lines: which disk a block means, the text for its files, and whether a file needs it.

A device file holds one line per disk (`maj:min value`); writing 0 (or weight 100) removes a limit. A disk that
stands in a file but is no longer configured gets these defaults, so that a limit never outlives its setting.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubetide.errors import InvalidInput

READ_IOPS = "blkio.throttle.read_iops_device"
READ_BPS = "blkio.throttle.read_bps_device"
WRITE_IOPS = "blkio.throttle.write_iops_device"
WRITE_BPS = "blkio.throttle.write_bps_device"
WEIGHT = "blkio.cost.weight"
COST_QOS = "blkio.cost.qos"
DEVICE_FILES = (READ_IOPS, READ_BPS, WRITE_IOPS, WRITE_BPS, WEIGHT)

DEFAULT_WEIGHT = 100
DEFAULT_LATENCY_US = 3000
_MAX_INT = 2**63 - 1
_DEVICE = re.compile(r"^\d+:\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """What the node's block devices are: numbers of disks and the ways to name one."""

    numbers: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    volume_groups: Mapping[str, str] = field(default_factory=dict)
    logical_volumes: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def number_of_disk(self, disk: str) -> str:
        """Return maj:min of a whole disk."""
        number = self.numbers.get(disk)
        if not number:
            raise InvalidInput(f"unknown disk {disk!r}", field="blocks")
        return number

    def number_of_device(self, device: str) -> str:
        """Return maj:min of the disk behind a disk or a partition."""
        return self.number_of_disk(self.partitions.get(device, device))

    def number_of_volume_group(self, group: str) -> str:
        """Return maj:min of the disk behind a volume group."""
        disk = self.volume_groups.get(group)
        if not disk:
            raise InvalidInput(f"unknown volume group {group!r}", field="blocks")
        return self.number_of_disk(disk)

    def number_of_mount(self, mount_point: str) -> str:
        """Return maj:min of the disk behind a mount point: a disk, a partition or a logical volume."""
        device = self.mounts.get(mount_point)
        if not device:
            raise InvalidInput(f"nothing is mounted at {mount_point!r}", field="blocks")
        group = self.logical_volumes.get(device)
        return self.number_of_volume_group(group) if group else self.number_of_device(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoLimits:
    """Limits of one disk in one scope; None is the default."""

    read_iops: int | None = None
    write_iops: int | None = None
    read_bps: int | None = None
    write_bps: int | None = None
    weight_percent: int | None = None
    read_latency_us: int | None = None
    write_latency_us: int | None = None


def limit_lines(number: str, limits: IoLimits | None) -> dict[str, str]:
    """Return the five lines of a disk for a best-effort or pod directory; None removes its limits."""
    limits = limits or IoLimits()
    weight = DEFAULT_WEIGHT if limits.weight_percent is None else limits.weight_percent
    return {
        READ_IOPS: f"{number} {limits.read_iops or 0}",
        READ_BPS: f"{number} {limits.read_bps or 0}",
        WRITE_IOPS: f"{number} {limits.write_iops or 0}",
        WRITE_BPS: f"{number} {limits.write_bps or 0}",
        WEIGHT: f"{number} {weight}",
    }


def root_lines(number: str, limits: IoLimits | None) -> dict[str, str]:
    """Return the latency targets of a disk for the root directory; None switches them off."""
    if limits is None:
        return {COST_QOS: f"{number} enable=0"}
    read = DEFAULT_LATENCY_US if limits.read_latency_us is None else limits.read_latency_us
    write = DEFAULT_LATENCY_US if limits.write_latency_us is None else limits.write_latency_us
    return {COST_QOS: f"{number} enable=1 ctrl=user rlat={read} wlat={write}"}


def devices_in(texts: Iterable[str]) -> list[str]:
    """Return the disks that have a line in any of the files, in order of appearance."""
    found: dict[str, None] = {}
    for text in texts:
        for line in text.splitlines():
            first = line.split(maxsplit=1)[0] if line.strip() else ""
            if _DEVICE.match(first):
                found[first] = None
    return list(found)


def line_needed(resource: str, current: str, new: str) -> bool:
    """Return whether a device line must be written, given the file as it is."""
    device, _, value = new.partition(" ")
    lines = [" ".join(line.split()) for line in current.splitlines()]
    own = [line for line in lines if line.split(" ", 1)[0] == device]
    if resource == COST_QOS:
        # The kernel prints more fields than were written; only those that we set can differ from our wish.
        wanted = _fields(value)
        return not any(wanted.items() <= _fields(line.partition(" ")[2]).items() for line in own)
    if value == "0":
        return bool(own)
    return new not in own


def line_valid(resource: str, value: str, *, minimum: int, maximum: int | None) -> bool:
    """Return whether a device line is within range; lines of another shape are left to the kernel."""
    highest = _MAX_INT if maximum is None else maximum
    if not value:
        return False
    if resource in DEVICE_FILES:
        parts = value.split(" ")
        return len(parts) != 2 or _in_range(parts[1], minimum, highest)
    if resource == COST_QOS:
        parts = value.split(" ")
        if len(parts) != 5:
            return True
        latencies = [part.partition("=")[2] for part in parts if part.startswith(("rlat=", "wlat="))]
        return all(_in_range(latency, minimum, highest) for latency in latencies)
    return False


def _fields(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split())


def _in_range(text: str, minimum: int, maximum: int) -> bool:
    if text == "max":
        return minimum <= _MAX_INT <= maximum
    try:
        number = int(text)
    except ValueError:
        return False
    return text == text.strip() and minimum <= number <= maximum
