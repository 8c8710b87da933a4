"""Applies plans to the machine: refuses wrong places, skips what is already so, isolates errors, audits writes.

A value is written only if the file does not already have it. What was written is remembered for two minutes; after
`force_after` the file is read again, because others may have changed it. Two kinds of failure are normal on a node
and stay quiet: a kernel without the file, and a cgroup that is gone.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.log import get_logger
from kubetide.node.core.files import CPU_BURST, CPU_QUOTA, CgroupFile, Check, Kind, Merge, NotOnThisVersion
from kubetide.node.core.formats.numbers import signed
from kubetide.node.core.layout import EscapesRoot, Layout
from kubetide.node.core.outcomes import Outcomes, WriteOutcome, WriteStatus
from kubetide.node.core.plan import Batch, Plan, Write, merge
from kubetide.node.host.protocol import Host, is_gone
from kubetide.node.host.readers import CgroupReader, PathCache
from kubetide.node.telemetry import MILLISECONDS
from kubetide.telemetry import Telemetry

log = get_logger("node.executor")

CACHE_LIFETIME = timedelta(minutes=2)
FORCE_AFTER = timedelta(seconds=60)
MOST_TOLD, MOST_AT_REST = 1000, 16


class NotStarted(KubetideError):
    """A cached update was asked for before the executor was started."""


class RefusedPlace(InvalidInput):
    """A value made for one pod, container or application would land in a directory that others share."""


class Unsupported(KubetideError):
    """The kernel does not have the file."""


class CgroupGone(KubetideError):
    """The cgroup or file does not exist."""


class WriteFailed(KubetideError):
    """The kernel refused a value."""


class Auditor(Protocol):
    """Remembers what was written."""

    def record_write(self, write: Write, path: str, previous: str, value: str) -> None:
        """Note one write that happened."""
        ...


@dataclass(slots=True)
class _Entry:
    text: str
    at: datetime


class _AtRest(NamedTuple):
    batch: Batch
    outcomes: Outcomes
    changes: int
    until: datetime


@dataclass(slots=True)
class WriteCounts:
    """How writes fared since the start."""

    written: int = 0
    unchanged: int = 0
    skipped: int = 0
    refused: int = 0
    failed: int = 0


class Executor:
    """The only writer of kernel files in the agent."""

    def __init__(
        self,
        host: Host,
        layout: Layout,
        clock: Clock,
        *,
        auditor: Auditor | None = None,
        force_after: timedelta = FORCE_AFTER,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.host = host
        self.layout = layout
        self.counts = WriteCounts()
        self.by = ""
        """Whose plan is being applied."""
        self._clock = clock
        self._auditor = auditor
        self._force_after = force_after
        self._paths = PathCache(layout)
        self._cache: dict[str, _Entry] = {}
        self._changes = 0  # how often something was remembered or forgotten
        self._at_rest: dict[int, _AtRest] = {}
        """By its id: a batch all of whose values were unchanged, and until when that holds while nothing changes."""
        self._support: dict[str, bool] = {}
        self._refused: set[str] = set()
        self._failing: dict[str, str] = {}
        self._started = False
        self._millis = (telemetry or Telemetry()).durations(
            "koordlet_resource_update_duration_milliseconds",
            "How long writing a kernel value takes.",
            ("type", "status"),
            MILLISECONDS,
        )

    def start(self) -> None:
        """Allow cached updates."""
        self._started = True

    def collect_garbage(self) -> None:
        """Forget entries that are too old to be believed, and refused values when they are many: reported again."""
        now = self._clock.now()
        self._at_rest.clear()
        self._cache = {key: entry for key, entry in self._cache.items() if now - entry.at <= CACHE_LIFETIME}
        if len(self._refused) > MOST_TOLD:
            self._refused.clear()
        if len(self._failing) > MOST_TOLD:
            self._failing.clear()

    @property
    def remembered(self) -> int:
        """Number of values that are remembered as written."""
        return len(self._cache)

    def apply(self, plan: Plan, by: str = "") -> Outcomes:
        """Apply all batches of a plan, made `by` a strategy; a value that cannot be written stops no other."""
        self.by = by
        return tuple(outcome for batch in plan.batches for outcome in self.apply_batch(batch))

    def apply_batch(self, batch: Batch) -> Outcomes:
        """Apply one batch, leveled or in order, and return what became of every write, in the order of the batch.

        Strategies that want the same as before hand over the same batch: it is looked through again when it must be.
        """
        rest = self._at_rest.get(id(batch))
        if rest is not None and rest.batch is batch and not self._failing:
            if rest.changes == self._changes and self._clock.now() <= rest.until:
                self.counts.unchanged += len(rest.outcomes)
                return rest.outcomes
            del self._at_rest[id(batch)]
        if batch.leveled:
            outcomes = self.update_leveled(batch.levels, cached=batch.cached)
        else:
            outcomes = tuple(self.update(write, cached=batch.cached) for level in batch.levels for write in level)
        if batch.cached and outcomes and all(outcome.status is WriteStatus.UNCHANGED for outcome in outcomes):
            self._rest(batch, outcomes)
        return outcomes

    def _rest(self, batch: Batch, outcomes: Outcomes) -> None:
        if len(self._at_rest) >= MOST_AT_REST:
            self._at_rest.clear()
        seen = min(self._cache[self._key(outcome.write)].at for outcome in outcomes)
        until = seen + min(self._force_after, CACHE_LIFETIME)
        self._at_rest[id(batch)] = _AtRest(batch, outcomes, self._changes, until)

    def update(self, write: Write, *, cached: bool = True) -> WriteOutcome:
        """Write one value and return the outcome of it; `cached` skips what was written a short while ago."""
        if cached and not self._started:
            raise NotStarted(f"update of {_name(write)} before the executor was started")
        return self._told(self._tried(write, self._settle if cached else self.write_through))

    def update_leveled(self, levels: Iterable[Iterable[Write]], *, cached: bool = True) -> Outcomes:
        """Apply values level by level: down the tree what grows, then up the tree the final values."""
        if not self._started:
            raise NotStarted("leveled update before the executor was started")
        ordered = [tuple(level) for level in levels]
        if not cached:
            for write in (write for level in ordered for write in level):
                self._forget(write)
        grown = [[self._tried(write, self._grow) for write in level] for level in ordered]
        settled = [[self._tried(write, self._settle) for write in level] for level in reversed(ordered)]
        return tuple(
            self._told(_both(before, after))
            for down, up in zip(grown, reversed(settled), strict=True)
            for before, after in zip(down, up, strict=True)
        )

    def _grow(self, write: Write) -> WriteStatus:
        """Write what a leveled update lets grow on its way down."""
        key = self._key(write)
        if not self._needs_update(key, write.value):
            return WriteStatus.UNCHANGED
        if not isinstance(write.file, CgroupFile) or write.file.merge is Merge.NONE:
            status = self.write_through(write)
            self._remember(key, write.value)
            return status
        current = write.file.current(self.layout.version, self._read(self._checked_path(write)))
        merged = merge(write.file, current, write.value)
        if not merged.grows:
            # What shrinks waits for the way up, which must find it different.
            self._remember(key, current)
            return WriteStatus.UNCHANGED
        status = self.write_through(write, value=merged.value)
        self._remember(key, merged.value)
        return status

    def _settle(self, write: Write) -> WriteStatus:
        """Write the final value unless it was seen or written a short while ago."""
        key = self._key(write)
        if not self._needs_update(key, write.value):
            return WriteStatus.UNCHANGED
        status = self.write_through(write)
        self._remember(key, write.value)
        return status

    def _tried(self, write: Write, act: Callable[[Write], WriteStatus]) -> WriteOutcome:
        try:
            return WriteOutcome(write, act(write))
        except CgroupGone as error:
            return WriteOutcome(write, WriteStatus.MISSING, str(error))
        except (Unsupported, NotOnThisVersion) as error:
            return WriteOutcome(write, WriteStatus.UNSUPPORTED, str(error))
        except (RefusedPlace, EscapesRoot) as error:
            return WriteOutcome(write, WriteStatus.REFUSED, str(error))
        except (KubetideError, OSError) as error:
            return WriteOutcome(write, WriteStatus.FAILED, str(error))

    def _told(self, outcome: WriteOutcome) -> WriteOutcome:
        """Count an outcome, and report a new failure: a value that is refused is wanted again every sync."""
        write, status, reason = outcome
        if status is WriteStatus.FAILED:
            self.counts.failed += 1
            where = f"{write.directory}/{_name(write)}"
            if self._failing.get(where) != reason:
                self._failing[where] = reason
                log.warning("kernel value not written", file=_name(write), directory=write.directory, error=reason)
            return outcome
        if status is WriteStatus.REFUSED:
            self.counts.refused += 1
            self._tell_once(write, reason)
        elif status is WriteStatus.UNCHANGED:
            self.counts.unchanged += 1
        elif status is not WriteStatus.WRITTEN:  # every write to the kernel is counted where it happens
            self.counts.skipped += 1
        if self._failing and status in (WriteStatus.WRITTEN, WriteStatus.UNCHANGED):
            self._failing.pop(f"{write.directory}/{_name(write)}", None)
        return outcome

    def _tell_once(self, write: Write, reason: str) -> None:
        subject = f"{write.subject.namespace}/{write.subject.name}/{write.subject.container}/{write.directory}"
        if subject not in self._refused:
            self._refused.add(subject)
            log.warning("write to a shared directory refused", file=_name(write), subject=subject, error=reason)

    def _path(self, write: Write) -> str:
        if isinstance(write.file, CgroupFile):
            return self._paths.path(write.file, write.directory)
        return self.layout.system_file(write.file)

    def _key(self, write: Write) -> str:
        path = self._path(write)
        if isinstance(write.file, CgroupFile) and write.file.kind in (Kind.DEVICE, Kind.COST):
            return f"{path} {write.value.partition(' ')[0]}"
        if isinstance(write.file, CgroupFile) and write.file.kind is Kind.PERIOD:
            return f"{path} period"  # on v2 the quota lives in the same file
        return path

    def _checked_path(self, write: Write) -> str:
        if write.target.is_single and self.layout.paths.is_shared(write.directory):
            raise RefusedPlace(f"{write.directory!r} is no directory of a {write.target}", subject=_name(write))
        path = self._path(write)
        if isinstance(write.file, CgroupFile):
            if not self._supported(write.file, path):
                raise Unsupported(f"this kernel has no {write.file.name}")
        elif write.file.optional and not self.host.exists(path):
            raise Unsupported(f"this kernel has no {path}")
        return path

    def _supported(self, file: CgroupFile, path: str) -> bool:
        check = file.check(self.layout.version)
        if check is Check.ALWAYS:
            return True
        if check is Check.DIRECTORY:
            return self.host.exists(path)
        known = self._support.get(file.name)
        if known is None:
            where = self.layout.paths.kube_root if check is Check.KUBE_ROOT else ""
            known = self.host.exists(self.layout.cgroup_file(file, where))
            # Before the kubelet made its root nothing can be said about the kernel, so nothing is remembered.
            if known or self.host.exists(self.layout.cgroup_dir(file.controller, where)):
                self._support[file.name] = known
        return known

    def _read(self, path: str) -> str:
        try:
            return self.host.read(path)
        except OSError as error:
            if is_gone(error):
                raise CgroupGone(f"{path} does not exist") from error
            raise

    def write_through(self, write: Write, *, value: str | None = None) -> WriteStatus:
        """Compare and write, past the cache: `value` (or the target) is written unless the file already has it.

        Return whether it was written; raise what the kernel or the rules refuse.
        """
        wanted = write.value if value is None else value
        path = self._checked_path(write)
        version = self.layout.version
        file = write.file
        if isinstance(file, CgroupFile):
            file.validate(version, wanted)
            if file is CPU_BURST:
                wanted = self._within_quota(write.directory, wanted)
            current = self._read(path)
            if file.same(version, current, wanted):
                return WriteStatus.UNCHANGED
            text = file.to_kernel(version, wanted, current)
            if file is CPU_QUOTA:
                self._lower_burst(write, wanted)
        else:
            file.validate(wanted)
            current = self._read(path)
            if current.strip("\n") == wanted:
                return WriteStatus.UNCHANGED
            text = wanted
        began, status = self._clock.monotonic(), "failed"
        try:
            self.host.write(path, text)
            status = "success"
        except OSError as error:
            if is_gone(error):
                raise CgroupGone(f"{path} does not exist") from error
            raise WriteFailed(f"writing {text!r} to {path}: {error}") from error
        finally:
            self._millis.add(1000 * (self._clock.monotonic() - began), _name(write), status)
        self.counts.written += 1
        if self._auditor is not None:
            self._auditor.record_write(write, path, current.strip("\n"), text)
        return WriteStatus.WRITTEN

    def _within_quota(self, directory: str, burst: str) -> str:
        """Return the burst, but not above the quota of the same cgroup, if it has one: kernels refuse that."""
        try:
            quota = CgroupReader(self.host, self.layout).cpu_quota(directory)
        except OSError as error:
            if is_gone(error):
                return burst
            raise
        return burst if quota < 0 else str(min(int(burst), quota))

    def _lower_burst(self, write: Write, quota: str) -> None:
        """Before a quota falls below the burst of its cgroup, lower the burst: kernels refuse the other order.

        The burst that is wanted comes back with the next update of it, which this forgets to have seen.
        """
        path = self.layout.cgroup_file(CPU_BURST, write.directory)
        self._cache.pop(path, None)
        self._changes += 1
        if signed(quota) < 0 or not self.host.exists(path):
            return
        burst = self._read(path).strip()
        if signed(burst) > signed(quota):
            self.host.write(path, quota)
            self.counts.written += 1
            if self._auditor is not None:
                self._auditor.record_write(replace(write, file=CPU_BURST, value=quota), path, burst, quota)

    def _needs_update(self, key: str, value: str) -> bool:
        entry = self._cache.get(key)
        if entry is None or entry.text != value:
            return True
        return self._clock.now() - entry.at > min(self._force_after, CACHE_LIFETIME)

    def _forget(self, write: Write) -> None:
        """Forget to have seen a value; a place that cannot be named has none."""
        self._changes += 1
        with suppress(InvalidInput):
            self._cache.pop(self._key(write), None)

    def _remember(self, key: str, value: str) -> None:
        self._cache[key] = _Entry(value, self._clock.now())
        self._changes += 1


def _both(down: WriteOutcome, up: WriteOutcome) -> WriteOutcome:
    """Return the outcome of both ways of a leveled update: the second decides, and what the first wrote counts."""
    return down if up.status is WriteStatus.UNCHANGED and down.status is WriteStatus.WRITTEN else up


def _name(write: Write) -> str:
    return write.file.name
