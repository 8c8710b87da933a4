"""Block I/O device lines: which disk a block means and the text for its files.

Writing 0 (or weight 100) removes a limit. A disk that stands in a file but is no longer configured gets these
defaults, so that a limit never outlives its setting.
"""

from kubetide.api.qos.slo_strategies import BlockCfg, IOCfg
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.formats.storage import StorageFacts

DEVICE_FILES = (
    files.BLKIO_READ_IOPS,
    files.BLKIO_READ_BPS,
    files.BLKIO_WRITE_IOPS,
    files.BLKIO_WRITE_BPS,
    files.BLKIO_COST_WEIGHT,
)

DEFAULT_WEIGHT = 100
DEFAULT_LATENCY_US = 3000

DEVICE = "device"
VOLUME_GROUP = "volumegroup"
POD_VOLUME = "podvolume"


def disk_number(storage: StorageFacts, block: BlockCfg, *, mount_point: str | None = None) -> str:
    """Return maj:min of the disk that a block names; a pod volume is found by its mount point."""
    if block.type == DEVICE:
        return _of_device(storage, block.name)
    if block.type == VOLUME_GROUP:
        return _of_group(storage, block.name)
    if block.type == POD_VOLUME and mount_point is not None:
        source = storage.mount_source.get(mount_point)
        if not source:
            raise InvalidInput(f"nothing is mounted at {mount_point!r}", field="blocks")
        group = storage.mapper_group.get(source)
        return _of_group(storage, group) if group else _of_device(storage, source)
    raise InvalidInput(f"block {block.name!r} has a type {block.type!r} that is not supported here", field="blocks")


def limit_lines(number: str, limits: IOCfg | None) -> dict[str, str]:
    """Return the five lines of a disk for a best-effort or pod directory; None removes its limits."""
    limits = limits or IOCfg()
    weight = DEFAULT_WEIGHT if limits.io_weight_percent is None else limits.io_weight_percent
    values = (limits.read_iops or 0, limits.read_bps or 0, limits.write_iops or 0, limits.write_bps or 0, weight)
    return {file.name: f"{number} {value}" for file, value in zip(DEVICE_FILES, values, strict=True)}


def root_lines(number: str, limits: IOCfg | None) -> dict[str, str]:
    """Return the latency targets of a disk for the root directory; None switches them off."""
    if limits is None:
        return {files.BLKIO_COST_QOS.name: f"{number} enable=0"}
    read = DEFAULT_LATENCY_US if limits.read_latency is None else limits.read_latency
    write = DEFAULT_LATENCY_US if limits.write_latency is None else limits.write_latency
    return {files.BLKIO_COST_QOS.name: f"{number} enable=1 ctrl=user rlat={read} wlat={write}"}


def _of_device(storage: StorageFacts, device: str) -> str:
    number = storage.disk_number.get(storage.partition_disk.get(device, device))
    if not number:
        raise InvalidInput(f"unknown disk {device!r}", field="blocks")
    return number


def _of_group(storage: StorageFacts, group: str) -> str:
    disk = storage.group_disk.get(group)
    if not disk:
        raise InvalidInput(f"unknown volume group {group!r}", field="blocks")
    return _of_device(storage, disk)
