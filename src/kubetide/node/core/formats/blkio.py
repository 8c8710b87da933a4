"""Device lines of block I/O files: `maj:min value`, one line per disk.

Writing a line changes that disk only, so "is it already so" must look at the disk's own line. A value of 0 removes a
limit and is needed only while there is one. The kernel prints more fields into blkio.cost.qos than were written; only
those that we set can differ from what we want.
"""

import re
from collections.abc import Iterable

_DEVICE = re.compile(r"^\d+:\d+")


def devices_in(texts: Iterable[str]) -> list[str]:
    """Return the disks that have a line in any of the texts, in order of appearance."""
    found: dict[str, None] = {}
    for text in texts:
        for line in text.splitlines():
            first = line.split(maxsplit=1)[0] if line.strip() else ""
            if _DEVICE.match(first):
                found[first] = None
    return list(found)


def line_needed(current: str, new: str) -> bool:
    """Return whether a device line must be written, given the file as it is."""
    device, _, value = new.partition(" ")
    own = [line for line in _lines(current) if line.split(" ", 1)[0] == device]
    if value == "0":
        return bool(own)
    return new not in own


def cost_line_needed(current: str, new: str) -> bool:
    """Return whether a line of blkio.cost.qos must be written, given the file as it is."""
    device, _, value = new.partition(" ")
    wanted = _fields(value)
    return not any(
        line.split(" ", 1)[0] == device and wanted.items() <= _fields(line.partition(" ")[2]).items()
        for line in _lines(current)
    )


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def _fields(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split())}
