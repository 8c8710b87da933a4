"""The beginning of /proc/<pid>/stat: who the process is and whom it belongs to."""

from dataclasses import dataclass

from kubetide.node.formats.numbers import FormatError, unsigned

_UINT32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Identity and kinship of a process."""

    pid: int
    command: str
    state: str
    parent: int
    group: int


def process_stat(text: str) -> ProcessStat:
    """Parse the first five fields; the command ends at the last parenthesis because it may contain one."""
    head, close, rest = text.rpartition(")")
    pid, open_, command = head.partition("(")
    fields = rest.split()
    if not close or not open_ or len(fields) < 3:
        raise FormatError(f"{text[:80]!r} is not the stat of a process")
    if len(fields[0]) != 1:
        raise FormatError(f"{fields[0]!r} is not the state of a process")
    return ProcessStat(
        pid=unsigned(pid.strip(), "pid", high=_UINT32_MAX),
        command=command,
        state=fields[0],
        parent=unsigned(fields[1], "parent pid", high=_UINT32_MAX),
        group=unsigned(fields[2], "process group", high=_UINT32_MAX),
    )
