"""Block devices from the output of lsblk, vgs, lvs and findmnt.

A partition belongs to the disk that lsblk names as its parent; where that column is missing, to the disk whose minor
number is the partition's rounded down to a multiple of 16 (right for SCSI and virtio, not for NVMe).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kubetide.node.core.formats.numbers import FormatError

_PAIR = r'([A-Z:_-]+)="((?:[^"\\]|\\.)*)"'
_PAIRS = re.compile(_PAIR)
_PAIR_LINE = re.compile(rf"{_PAIR}(?:\s+{_PAIR})*")
_DEVICE = re.compile(r"[0-9]+:[0-9]+")
_MINORS_PER_DISK = 16

LSBLK = ("lsblk", "-P", "-o", "NAME,TYPE,MAJ:MIN,PKNAME")
LSBLK_PLAIN = ("lsblk", "-P", "-o", "NAME,TYPE,MAJ:MIN")
VGS = ("vgs", "--noheadings", "--options", "vg_name,pv_count,pv_name")
LVS = ("lvs", "--noheadings", "--options", "lv_name,vg_name")
FINDMNT = ("findmnt", "-P", "-o", "TARGET,SOURCE")


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """Which disk is behind a device number, a partition, a volume group, a logical volume or a mount point."""

    disk_number: Mapping[str, str] = field(default_factory=dict)
    number_disk: Mapping[str, str] = field(default_factory=dict)
    partition_disk: Mapping[str, str] = field(default_factory=dict)
    group_disk: Mapping[str, str] = field(default_factory=dict)
    mapper_group: Mapping[str, str] = field(default_factory=dict)
    mount_source: Mapping[str, str] = field(default_factory=dict)


def disk_number(partition: str) -> str:
    """Return the device number of the disk of a partition; empty for what is not a device number."""
    if not _DEVICE.fullmatch(partition):
        return ""
    major, minor = partition.split(":")
    return f"{major}:{int(minor) - int(minor) % _MINORS_PER_DISK}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _pairs(line: str, count: int, *, optional: str = "") -> dict[str, str]:
    pairs = _PAIRS.findall(line) if _PAIR_LINE.fullmatch(line) else []
    if len([name for name, _ in pairs if name != optional]) != count or len(pairs) > count + 1:
        raise FormatError(f'{line!r} does not have {count} KEY="value" pairs')
    return dict(pairs)


def read_lsblk(text: str, known: StorageFacts) -> StorageFacts:
    """Add disks and partitions; a partition listed before its disk stays without one."""
    numbers, disks, partitions = dict(known.disk_number), dict(known.number_disk), dict(known.partition_disk)
    for line in _lines(text):
        pairs = _pairs(line, 3, optional="PKNAME")
        number = pairs.get("MAJ:MIN", pairs.get("MAJ_MIN", ""))
        name = f"/dev/{pairs.get('NAME', '')}"
        if pairs.get("TYPE") == "disk":
            numbers[name], disks[number] = number, name
        elif pairs.get("TYPE") == "part":
            parent = f"/dev/{pairs['PKNAME']}" if pairs.get("PKNAME") else ""
            partitions[name] = parent or disks.get(disk_number(number), "")
    return replace(known, disk_number=numbers, number_disk=disks, partition_disk=partitions)


def read_vgs(text: str, known: StorageFacts) -> StorageFacts:
    """Add volume groups that lie on exactly one physical volume."""
    groups = dict(known.group_disk)
    for line in _lines(text):
        words = line.split()
        if len(words) != 3:
            raise FormatError(f"{line!r} of vgs does not have three words")
        group, count, device = words
        if count == "1":
            groups[group] = device if device in known.disk_number else known.partition_disk.get(device, "")
    return replace(known, group_disk=groups)


def read_lvs(text: str, known: StorageFacts) -> StorageFacts:
    """Add logical volumes under their device mapper name, in which dashes are doubled."""
    mappers = dict(known.mapper_group)
    for line in _lines(text):
        words = line.split()
        if len(words) != 2:
            raise FormatError(f"{line!r} of lvs does not have two words")
        volume, group = (word.replace("-", "--") for word in words)
        mappers[f"/dev/mapper/{group}-{volume}"] = words[1]
    return replace(known, mapper_group=mappers)


def read_findmnt(text: str, known: StorageFacts) -> StorageFacts:
    """Add mount points."""
    mounts = dict(known.mount_source)
    for line in _lines(text):
        pairs = _pairs(line, 2)
        mounts[pairs.get("TARGET", "")] = pairs.get("SOURCE", "")
    return replace(known, mount_source=mounts)


# Names of devices in sysfs.

_ROOT_COMPLEX = re.compile(r"pci[0-9]{4}:[0-9a-fA-F]{2}")


def pcie_root(path: str) -> str:
    """Return the PCIe root complex in a resolved sysfs path, or empty text."""
    match = _ROOT_COMPLEX.search(path)
    return match[0] if match else ""
