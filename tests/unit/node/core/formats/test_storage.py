"""Block devices from the output of tools."""

import pytest

from kubetide.node.core.formats.numbers import FormatError
from kubetide.node.core.formats.storage import StorageFacts, disk_number, read_findmnt, read_lsblk, read_lvs, read_vgs

DISK = 'NAME="sda" TYPE="disk" MAJ:MIN="8:0"'
PART = 'NAME="sda1" TYPE="part" MAJ:MIN="8:1"'


def lsblk(*lines: str) -> StorageFacts:
    return read_lsblk("\n".join(lines), StorageFacts())


@pytest.mark.parametrize(
    ("number", "disk"),
    [("8:0", "8:0"), ("8:15", "8:0"), ("8:16", "8:16"), ("8:35", "8:32"), ("8:", ""), ("a:1", ""), ("8", ""), ("", "")],
)
def test_a_partition_belongs_to_the_next_multiple_of_sixteen_below(number: str, disk: str) -> None:
    assert disk_number(number) == disk


def test_disks_are_known_both_ways_and_other_types_not_at_all() -> None:
    found = lsblk(DISK, PART, 'NAME="sr0" TYPE="rom" MAJ:MIN="11:0"', "")
    assert found.disk_number == {"/dev/sda": "8:0"}
    assert found.number_disk == {"8:0": "/dev/sda"}
    assert found.partition_disk == {"/dev/sda1": "/dev/sda"}


def test_a_partition_listed_before_its_disk_has_none() -> None:
    assert lsblk(PART, DISK).partition_disk == {"/dev/sda1": ""}


def test_the_parent_that_lsblk_names_wins_over_the_number() -> None:
    disk = 'NAME="nvme1n1" TYPE="disk" MAJ:MIN="259:5" PKNAME=""'
    part = 'NAME="nvme1n1p1" TYPE="part" MAJ:MIN="259:6" PKNAME="nvme1n1"'
    assert lsblk(disk, part).partition_disk == {"/dev/nvme1n1p1": "/dev/nvme1n1"}


@pytest.mark.parametrize(
    "line",
    [
        'NAME="sda" TYPE="disk"',
        f'{DISK} SIZE="5"',
        f'{DISK} PKNAME="" SIZE="5"',
        'NAME="sda" TYPE="disk" PKNAME="x"',
        f"{DISK} rest",
        'NAME="sda"TYPE="disk" MAJ:MIN="8:0"',
        'NAME=sda TYPE="disk" MAJ:MIN="8:0"',
        "lsblk: not found",
    ],
)
def test_a_line_of_lsblk_has_its_three_pairs_and_nothing_else(line: str) -> None:
    with pytest.raises(FormatError):
        lsblk(DISK, line)


def test_groups_on_one_volume_lead_to_its_disk() -> None:
    known = lsblk(DISK, PART)
    text = "  whole 1 /dev/sda \n  part 1 /dev/sda1\n  two 2 /dev/sda1\n  stranger 1 /dev/sdz\n"
    assert read_vgs(text, known).group_disk == {"whole": "/dev/sda", "part": "/dev/sda", "stranger": ""}
    for bad in ("a 1", "a 1 /dev/sda x"):
        with pytest.raises(FormatError):
            read_vgs(bad, known)


def test_dashes_of_mapper_names_are_doubled() -> None:
    found = read_lvs("  lv-a my-pool\n  data pool\n", StorageFacts())
    assert found.mapper_group == {"/dev/mapper/my--pool-lv--a": "my-pool", "/dev/mapper/pool-data": "pool"}
    with pytest.raises(FormatError):
        read_lvs("lv", StorageFacts())


def test_mount_points_may_hold_spaces_and_sources_may_be_empty() -> None:
    found = read_findmnt('TARGET="/mnt/x y" SOURCE="/dev/sda1"\r\nTARGET="/a" SOURCE=""\n', StorageFacts())
    assert found.mount_source == {"/mnt/x y": "/dev/sda1", "/a": ""}
    with pytest.raises(FormatError):
        read_findmnt('TARGET="/"', StorageFacts())
