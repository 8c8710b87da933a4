"""Kernel values as plain data: what a decision asks for, and what was read for it before it ran.

    needs  = strategy.needs(snapshot)          which values, named by file and cgroup: nothing is read here
    kernel = KernelReader(...).read(needs)     one pass over the files, by the shell
    plan   = strategy.decide(snapshot with kernel)

A decision that names what it looks at can be run anywhere, from values that a test (or a recording) makes up, and
only what somebody looks at is read. A value that could not be read is absent, never zero; `problems` has the reason.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core.files import CgroupFile, SystemFile

Place = tuple[CgroupFile, str]
"""A file and the cgroup it is in, relative to the cgroup root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The kernel values that a decision looks at. Cgroups are named relative to the cgroup root."""

    quotas: Collection[str] = ()
    """Cgroups whose CFS quota is wanted."""
    cpus: Collection[str] = ()
    """Cgroups whose CPUs in force are wanted."""
    children: Collection[str] = ()
    """Cgroups whose children are wanted."""
    trees: Collection[str] = ()
    """Cgroups whose children are wanted, and the children of these."""
    cpus_inside: Collection[str] = ()
    """Cgroups of `trees` of which the CPUs in force two levels below are wanted: those of containers."""
    texts: Collection[Place] = ()
    """Files whose text is wanted."""
    texts_below: Collection[Place] = ()
    """Files whose text is wanted in every cgroup directly below; their names come as `children`."""
    present: Collection[Place] = ()
    """Files of which it is wanted whether they exist."""
    settings: Collection[SystemFile] = ()
    """Kernel settings outside the cgroup tree whose text is wanted."""


NOTHING = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelValues:
    """What was read. Every mapping has only what could be read."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    """CFS quota in microseconds by cgroup; -1 is unlimited."""
    cpus: Mapping[str, CpuSet] = field(default_factory=dict)
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the cgroups directly below a cgroup, sorted; a cgroup that does not exist has none."""
    texts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By name of the file and cgroup; without surrounding newlines."""
    present: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """By name of the file and cgroup; absent while the cgroup itself does not exist, which says nothing."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By path below the root of the file."""
    cookies: Mapping[int, int] = field(default_factory=dict)
    """Core scheduling cookies by process; 0 is none."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a value is absent, by `named`."""

    def text(self, file: CgroupFile, directory: str) -> str | None:
        """Return the text of a file."""
        return self.texts.get((file.name, directory))

    def has(self, file: CgroupFile, directory: str) -> bool | None:
        """Return whether a file exists; None while nothing can be said."""
        return self.present.get((file.name, directory))

    def setting(self, file: SystemFile) -> str | None:
        """Return the text of a kernel setting."""
        return self.settings.get(file.path)

    def problem(self, file: CgroupFile | SystemFile, directory: str = "") -> str:
        """Return why a value is absent."""
        return self.problems.get(named(file, directory), "it was not read")


def named(file: CgroupFile | SystemFile, directory: str = "") -> str:
    """Return the name of a value in `problems`."""
    return file.path if isinstance(file, SystemFile) else f"{directory}/{file.name}"
