"""Plans of kernel writes: what is wanted, for whom, why; and the order in which it becomes true.

A strategy returns a `Plan`. Its batches are applied in order. In a leveled batch (parents first: tier, pod,
container) the values of a parent must at every instant be at least as generous as those of its children, so it is
applied twice: down the tree writing only what grows, then up the tree writing the final values.

    if larger      grows when target > current; `max` is 2^63-1, and -1 too where it means "no limit" (CPU quota)
    if looser      grows when target is not inside current; the union is written first, the target on the way up
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core.files import CgroupFile, Kind, Merge, SystemFile
from kubetide.node.core.formats.numbers import INT64_MAX, signed


class Target(StrEnum):
    """What kind of thing a write is made for; decides which directories it may touch."""

    ROOT = "root"
    TIER = "tier"
    POD = "pod"
    CONTAINER = "container"
    HOST_APPLICATION = "host application"
    SYSTEM = "system"

    @property
    def is_single(self) -> bool:
        """Made for one pod, container or application: may never touch a directory that others share."""
        return self in (Target.POD, Target.CONTAINER, Target.HOST_APPLICATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The object an audit event is about."""

    type: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""
    container_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One wanted value. `directory` is relative to the cgroup root; system files ignore it."""

    file: CgroupFile | SystemFile
    value: str
    directory: str = ""
    target: Target = Target.SYSTEM
    reason: str = ""
    level: int = 3
    subject: Subject = field(default_factory=Subject)
    message: str = ""
    effect: object = None
    """What the one who planned it remembers once the value is in force; whoever writes does not look at it."""

    @property
    def audit_reason(self) -> str:
        """The reason shown in the audit log."""
        if self.reason:
            return self.reason
        return "UpdateCgroups" if isinstance(self.file, CgroupFile) else "UpdateSystemConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Writes that belong together. More than one level means a leveled update; `cached` skips unchanged values."""

    levels: tuple[tuple[Write, ...], ...]
    leveled: bool = False
    cached: bool = True

    @staticmethod
    def flat(*writes: Write, cached: bool = True) -> "Batch":
        """Return a batch applied in the given order."""
        return Batch(levels=(writes,), cached=cached)


class Counted(StrEnum):
    """What a pod releases by leaving: what it uses, or what it requested."""

    USAGE = "podUsed"
    REQUEST = "podResourceRequest"


Amounts = Mapping[str, int]
"""Amounts by resource: `cpu` in milli-CPU, `memory` in bytes, batch and mid resources as they count themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that should leave the node, why, and what its leaving releases."""

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    stop_containers: bool = False
    releases: Mapping[Counted, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionTask:
    """Amounts that must be released, and the pods to ask for, in order, until they are."""

    feature: str
    counted: Counted
    amounts: Amounts
    candidates: tuple[Eviction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """A container, or a sandbox without a name, whose processes belong to a core scheduling group, if it is enabled."""

    namespace: str = ""
    pod: str = ""
    uid: str
    name: str = ""
    identity: str
    group: str
    enabled: bool
    pids: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """What it is remembered by."""
        return f"{self.uid}/{self.identity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCookie:
    """A process gets a new core scheduling cookie, and others of its group get the same."""

    group: str
    first: int
    others: tuple[int, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes that should have it."""
        return (self.first, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCookie:
    """Processes get the cookie that a process of their group has."""

    group: str
    cookie: int
    source: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCookies:
    """Processes lose their cookies."""

    pids: tuple[int, ...]


CookieOperation = CreateCookie | ShareCookie | ClearCookies


@dataclass(frozen=True, slots=True, kw_only=True)
class CookiePlan:
    """Core scheduling in one sync: what was looked at, and what should be done."""

    at: datetime
    containers: tuple[Grouped, ...]
    found: Mapping[int, int]
    """Cookies by process as they were read; a process whose cookie could not be read is absent."""
    operations: tuple[CookieOperation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something people should hear about a pod or (without a name) the node: becomes an event and an audit entry."""

    reason: str
    message: str
    namespace: str = ""
    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a strategy wants in one sync. `trace` says how it came to that, for people and for `explain`."""

    batches: tuple[Batch, ...] = ()
    tasks: tuple[EvictionTask, ...] = ()
    """Who should leave; what one task releases counts for the later ones too (`evictions.selection`)."""
    pending: Mapping[Counted, Amounts] = field(default_factory=dict)
    """What pods release that are leaving already; it counts before anybody is asked for."""
    cookies: CookiePlan | None = None
    notices: tuple[Notice, ...] = ()
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing to write and nobody to evict."""
        return not self.tasks and not any(level for batch in self.batches for level in batch.levels)


@dataclass(frozen=True, slots=True)
class Merged:
    """Outcome of the first pass for one value: write `value` now, or leave the current one until the second."""

    grows: bool
    value: str


def _size(text: str, *, negative_is_infinite: bool) -> int:
    if text == "max":
        return INT64_MAX
    value = signed(text)
    return INT64_MAX if negative_is_infinite and value == -1 else value


def merge_if_larger(file: CgroupFile, current: str, target: str) -> Merged:
    """Grow when the target is larger; raise FormatError for texts that are not sizes."""
    infinite = file.kind is Kind.QUOTA
    old = _size(current, negative_is_infinite=infinite)
    new = _size(target, negative_is_infinite=infinite)
    return Merged(new > old, target)


def merge_if_looser(current: str, target: str) -> Merged:
    """Grow to the union when the target has CPUs that the current set lacks; raise CpuSetError."""
    old, new = CpuSet.parse(current), CpuSet.parse(target)
    if new <= old:
        return Merged(False, target)
    return Merged(True, str(old | new))


def merge(file: CgroupFile, current: str, target: str) -> Merged:
    """Apply the file's merge rule to its current value; a file without one takes the target at once."""
    if file.merge is Merge.IF_LARGER:
        return merge_if_larger(file, current, target)
    if file.merge is Merge.IF_LOOSER:
        return merge_if_looser(current, target)
    return Merged(True, target)
