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
DEFAULT_PERCENT = 95

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


def root_latency_lines(number: str, limits: IOCfg | None) -> dict[str, str]:
    """Return the latency targets of a disk for the root directory, without percentiles; None switches them off."""
    if limits is None:
        return {files.BLKIO_COST_QOS.name: f"{number} enable=0"}
    read, write = _latencies(limits)
    return {files.BLKIO_COST_QOS.name: f"{number} enable=1 ctrl=user rlat={read} wlat={write}"}


def root_lines(number: str, limits: IOCfg | None) -> dict[str, str]:
    """Return latency targets with percentiles and the cost model of a disk for the root directory; None: off."""
    if limits is None:
        return {files.BLKIO_COST_QOS.name: f"{number} enable=0"}
    read, write = _latencies(limits)
    read_percent = DEFAULT_PERCENT if limits.read_latency_percent is None else limits.read_latency_percent
    write_percent = DEFAULT_PERCENT if limits.write_latency_percent is None else limits.write_latency_percent
    target = f"rpct={read_percent} rlat={read} wpct={write_percent} wlat={write}"
    model = "ctrl=auto"
    if limits.enable_user_model:
        model = "ctrl=user " + " ".join(f"{name}={value or 0}" for name, _, value in model_values(limits))
    return {
        files.BLKIO_COST_QOS.name: f"{number} enable=1 ctrl=user {target}",
        files.BLKIO_COST_MODEL.name: f"{number} {model}",
    }


def model_values(limits: IOCfg) -> tuple[tuple[str, str, int | None], ...]:
    """Return the cost model of a disk: the kernel's name, the field and its value, in the order of the line."""
    return (
        ("rbps", "modelReadBPS", limits.model_read_bps),
        ("rseqiops", "modelReadSeqIOPS", limits.model_read_seq_iops),
        ("rrandiops", "modelReadRandIOPS", limits.model_read_rand_iops),
        ("wbps", "modelWriteBPS", limits.model_write_bps),
        ("wseqiops", "modelWriteSeqIOPS", limits.model_write_seq_iops),
        ("wrandiops", "modelWriteRandIOPS", limits.model_write_rand_iops),
    )


def missing_model_values(limits: IOCfg | None) -> list[str]:
    """Return the fields that a model of the user lacks; the kernel takes only a complete one."""
    if limits is None or not limits.enable_user_model:
        return []
    return [field for _, field, value in model_values(limits) if not value]


def _latencies(limits: IOCfg) -> tuple[int, int]:
    read = DEFAULT_LATENCY_US if limits.read_latency is None else limits.read_latency
    write = DEFAULT_LATENCY_US if limits.write_latency is None else limits.write_latency
    return read, write


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
