"""What became of every write of a plan: the only thing that memory of strategies and hooks may grow from.

A plan says what is wanted. Between wanting and having there is a kernel that may answer EBUSY, a cgroup that went away
in this moment, a file that this kernel does not have. Whoever remembers "the quota is lifted" therefore looks at the
outcome of that write, never at the plan:

    written, unchanged      the value is in force
    missing                 the cgroup (or the file in it) does not exist: nothing is limited there, nothing is lifted
    unsupported             this kernel or cgroup version has no such file
    refused                 a rule of the agent: the value would land where others live
    failed                  the kernel refused, and what was in force before still is; with its `reason`
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from kubetide.node.core.plan import Batch, CookieOperation, Plan, Write


class WriteStatus(StrEnum):
    """What became of one write."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    MISSING = "missing"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    FAILED = "failed"


_IN_FORCE = frozenset({WriteStatus.WRITTEN, WriteStatus.UNCHANGED})
_TRY_AGAIN = frozenset({WriteStatus.FAILED, WriteStatus.REFUSED})


class WriteOutcome(NamedTuple):
    """One write of a plan and what became of it; there is exactly one for every write."""

    write: Write
    status: WriteStatus
    reason: str = ""

    @property
    def in_force(self) -> bool:
        """The file has the value now."""
        return self.status in _IN_FORCE

    @property
    def failed(self) -> bool:
        """The file is there and does not have the value."""
        return self.status in _TRY_AGAIN


Outcomes = tuple[WriteOutcome, ...]
"""The outcomes of a plan or batch, in the order of its writes."""


class CookieOutcome(NamedTuple):
    """One operation on core scheduling cookies and what its processes carry afterwards, as the kernel reports it."""

    operation: CookieOperation
    cookies: Mapping[int, int]
    """By process; one whose cookie cannot be read, because it ended or the kernel refuses, is absent."""
    reason: str = ""
    """Why it failed, wholly or for some processes."""


class Applies(Protocol):
    """Whoever turns plans into kernel writes; the executor is the one in production."""

    def apply(self, plan: Plan) -> Outcomes:
        """Apply all batches of a plan and return the outcome of every write."""
        ...

    def apply_batch(self, batch: Batch) -> Outcomes:
        """Apply one batch and return the outcome of every write."""
        ...


def failures(outcomes: Iterable[WriteOutcome]) -> dict[str, str]:
    """Return why values are not in force that should be, by directory and file."""
    return {
        f"{one.write.directory}/{one.write.file.name}".lstrip("/"): one.reason or str(one.status)
        for one in outcomes
        if one.failed
    }
