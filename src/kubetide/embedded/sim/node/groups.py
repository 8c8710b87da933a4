"""The cgroup tree of one simulated node: what is configured at each level, and where counters of the dead go.

A group is either inner (a QoS tier, a pod) or a leaf with processes: then `row` points at its column in the kernel's
table. Settings are kept in one form whatever the cgroup version: shares, microseconds, bytes, CPU numbers; `None`
means not limited, or inherited.
"""

from collections.abc import Iterator

IDLE_SHARES = 3
"""The weight the scheduler gives a group with `cpu.idle`: it gets what nobody else wants."""

DEFAULT_SHARES = 1024
DEFAULT_PERIOD_US = 100_000


class CGroup:
    """One directory of the cgroup file system."""

    __slots__ = (
        "burst_us", "bvt", "children", "cpus", "extra", "granted", "idle", "memory_high", "memory_limit", "memory_low",
        "memory_min", "name", "parent", "period_us", "periods", "quota_us", "retired_stalled",
        "retired_usage", "row", "shares", "throttled", "throttled_seconds", "want",
    )  # fmt: skip

    def __init__(self, name: str, parent: "CGroup | None") -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str, CGroup] = {}
        self.row: int | None = None
        self.shares = DEFAULT_SHARES
        self.quota_us: int | None = None
        self.period_us = DEFAULT_PERIOD_US
        self.burst_us = 0
        self.idle = 0
        self.bvt = 0
        self.cpus: frozenset[int] | None = None
        self.memory_limit: int | None = None
        self.memory_min = 0
        self.memory_low = 0
        self.memory_high: int | None = None
        self.extra: dict[str, str] = {}
        self.retired_usage = 0.0
        self.retired_stalled = 0.0
        self.periods = 0.0
        self.throttled = 0.0
        self.throttled_seconds = 0.0
        self.want = 0.0
        self.granted = 0.0

    @property
    def path(self) -> str:
        """The path below the cgroup root, empty for the root itself."""
        parts: list[str] = []
        group: CGroup | None = self
        while group is not None and group.parent is not None:
            parts.append(group.name)
            group = group.parent
        return "/".join(reversed(parts))

    @property
    def weight(self) -> float:
        """What the fair share goes by; idle and low-identity groups count next to nothing."""
        return float(IDLE_SHARES if self.idle or self.bvt < 0 else self.shares)

    @property
    def quota_cores(self) -> float | None:
        """The CPU quota in cores, or None when there is none."""
        return None if self.quota_us is None else self.quota_us / self.period_us

    @property
    def burst_cores(self) -> float:
        """How much one period may borrow from quieter ones, in cores."""
        return self.burst_us / self.period_us

    def leaves(self) -> Iterator["CGroup"]:
        """Yield every group below (or this one) that has processes."""
        if self.row is not None:
            yield self
        for child in self.children.values():
            yield from child.leaves()

    def walk(self) -> Iterator["CGroup"]:
        """Yield this group and all below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def effective_cpus(self, everything: frozenset[int]) -> frozenset[int]:
        """Return the CPUs this group may run on: its own within its parents', which an empty set inherits."""
        inherited = everything if self.parent is None else self.parent.effective_cpus(everything)
        if not self.cpus:
            return inherited
        return (self.cpus & inherited) or inherited


class GroupTree:
    """All groups of one node, found by path."""

    def __init__(self) -> None:
        self.root = CGroup("", None)

    def find(self, path: str) -> CGroup | None:
        group = self.root
        for part in path.split("/"):
            if part:
                below = group.children.get(part)
                if below is None:
                    return None
                group = below
        return group

    def make(self, path: str) -> CGroup:
        """Return the group at `path`, made with its parents where they are missing."""
        group = self.root
        for part in path.split("/"):
            if part:
                below = group.children.get(part)
                if below is None:
                    below = group.children[part] = CGroup(part, group)
                group = below
        return group

    def remove(self, group: CGroup) -> None:
        """Take an empty group out; what it used stays counted in its parent."""
        parent = group.parent
        if parent is None or group.children or group.row is not None:
            raise OSError(16, "Device or resource busy", group.path)
        parent.retired_usage += group.retired_usage
        parent.retired_stalled = max(parent.retired_stalled, group.retired_stalled)
        del parent.children[group.name]
