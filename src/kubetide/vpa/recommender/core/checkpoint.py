"""Aggregate state to checkpoint objects and back.

A checkpoint holds the merged state of one container of one VPA, including containers that are switched off, in the
format that the Go recommender reads and writes (version v3). The peaks of memory windows still open are taken out,
because the containers that made them are still there and will report again.

What the format cannot say rides along in an annotation: the open windows themselves. A restart then continues each
window where it stood instead of forgetting its peak. The annotation names the `lastUpdateTime` it belongs to, so one
left behind by a recommender that only writes `status` is ignored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import CHECKPOINT_VERSION, HistogramCheckpoint, VerticalPodAutoscalerCheckpoint
from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.instants import ZERO_TIME, microseconds, moment
from kubetide.stats.saved import Saved, save
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.aggregate import CPU_BUCKETS, MEMORY_BUCKETS
from kubetide.vpa.recommender.core.entities import Mark, VpaState, Window
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import CHUNK, MergedRows, Row, merge_rows, rows_of

WINDOWS_ANNOTATION = "kubetide.io/open-windows"
# Annotations of an object may not pass 256 KiB together; beyond this the windows stay behind.
LONGEST_WINDOWS = 200_000
_NAMES = tuple(str(bucket) for bucket in range(max(CPU_BUCKETS.count, MEMORY_BUCKETS.count)))


class UnreadableCheckpoint(InvalidInput):
    """A checkpoint that cannot be used: it is kept as it is and not overwritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The merged state of one container, apart from open windows."""

    container: str
    cpu: Saved
    memory: Saved
    first: int
    last: int
    count: int
    windows: tuple[Window, ...] = ()
    with_windows: bool = True
    """False where open windows did not come along: what their containers needed, OOM kills included, is not known."""

    @property
    def mark(self) -> Mark:
        """Return what distinguishes this content from another."""
        cpu, memory = self.cpu, self.memory
        return Mark(self.first, self.last, self.count, cpu.total, cpu.reference, memory.total, memory.reference)


def checkpoints(
    model: Model,
    vpas: Sequence[VpaState],
    *,
    now: datetime,
    stored: Callable[[ObjectKey, str, Mark], bool] | None = None,
) -> dict[str, list[Checkpoint]]:
    """Return what would be stored now for each VPA, by the text of its key.

    Containers without an open window whose content `stored` knows already are left out: nothing runs there.
    """
    result: dict[str, list[Checkpoint]] = {str(vpa.key): [] for vpa in vpas}
    rows = rows_of(vpas, with_off=True)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        for row, one in _checkpoints(model, part, microseconds(now), stored):
            result[str(row.vpa.key)].append(one)
    return result


def _checkpoints(
    model: Model, rows: Sequence[Row], now: int, stored: Callable[[ObjectKey, str, Mark], bool] | None
) -> Iterator[tuple[Row, Checkpoint]]:
    running = _running(model, rows, now)
    merged = merge_rows(model.aggregates, rows)
    if stored is not None:
        changed = _changed(merged, rows, running, stored)
        if len(changed) < len(rows):
            place = np.full(len(rows), -1, dtype=np.int64)
            place[changed] = np.arange(len(changed))
            rows = [rows[i] for i in changed]
            merged, running = merged.select(changed), replace(running, row=place[running.row])
    saved: dict[str, list[Saved]] = {}
    for resource in (CPU, MEMORY):
        found: dict[int, Saved] = {}
        for members, block in merged.blocks[resource]:
            if resource == MEMORY:
                place = np.full(len(rows), -1, dtype=np.int64)
                place[members] = np.arange(members.size)
                here = place[running.row] >= 0
                block.subtract(place[running.row[here]], running.peak[here], 1.0, running.end[here])
            found.update(zip(members.tolist(), save(block), strict=True))
        saved[resource] = [found[i] for i in range(len(rows))]
    ends = np.searchsorted(running.row, np.arange(1, len(rows) + 1)).tolist()
    starts = [0, *ends[:-1]]
    firsts, lasts, counts = merged.first.tolist(), merged.last.tolist(), merged.count.tolist()
    for i, row in enumerate(rows):
        yield (
            row,
            Checkpoint(
                container=row.container,
                cpu=saved[CPU][i],
                memory=saved[MEMORY][i],
                first=firsts[i],
                last=lasts[i],
                count=counts[i],
                windows=running.of(starts[i], ends[i]),
            ),
        )


def _changed(
    merged: MergedRows, rows: Sequence[Row], running: "_Running", stored: Callable[[ObjectKey, str, Mark], bool]
) -> list[int]:
    """Return the rows with an open window, or with content that is not stored yet."""
    numbers: list[list[Any]] = [merged.first.tolist(), merged.last.tolist(), merged.count.tolist()]
    for resource in (CPU, MEMORY):
        total, reference = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for members, block in merged.blocks[resource]:
            total[members], reference[members] = block.total, block.reference
        numbers += [total.tolist(), reference.tolist()]
    is_open = np.zeros(len(rows), dtype=np.bool_)
    is_open[running.row] = True
    return [
        i
        for i, (row, still, mark) in enumerate(zip(rows, is_open.tolist(), map(Mark, *numbers), strict=True))
        if still or not stored(row.vpa.key, row.container, mark)
    ]


@dataclass(frozen=True, slots=True)
class _Running:
    """Open windows of all rows, in the order of the rows; None for one whose peak lies with another VPA."""

    row: Ints
    end: Ints
    peak: Floats
    windows: list[Window | None]

    def of(self, start: int, end: int) -> tuple[Window, ...]:
        """Return the windows between two positions that can be continued."""
        return tuple(filter(None, self.windows[start:end]))


def _running(model: Model, rows: Sequence[Row], now: int) -> _Running:
    numbers: list[int] = []
    pods: list[str] = []
    uids: list[str] = []
    at: list[int] = []
    for number, row in enumerate(rows):
        for labels in row.vpa.label_sets.values():
            if row.container not in labels.aggregates:
                continue
            for pod in labels.pods.values():
                place = pod.containers.get(row.container)
                if place is not None:
                    numbers.append(number)
                    pods.append(pod.key.name)
                    uids.append(pod.uid)
                    at.append(place)
    table, where = model.containers, np.array(at, dtype=np.int64)
    owner, end = np.array(numbers, dtype=np.int64), table.window_end[where]
    peak, oom_peak = table.peak[where], table.oom_peak[where]
    columns = (end, peak, oom_peak, table.last_memory[where], table.last_cpu[where])
    windows: list[Window | None] = list(map(Window, pods, uids, *(column.tolist() for column in columns)))
    # A container that was relabelled left its peak with its old labels. Where these are another VPA's, putting it back
    # here would count a peak that never was.
    for moved in np.flatnonzero(table.home[where] != table.aggregate[where]).tolist():
        row = rows[numbers[moved]]
        homes = {labels.aggregates.get(row.container) for labels in row.vpa.label_sets.values()}
        if int(table.home[where[moved]]) not in homes:
            windows[moved] = None
    still = end > now
    if not still.all():
        windows = [window for window, is_open in zip(windows, still.tolist(), strict=True) if is_open]
    return _Running(owner[still], end[still], np.maximum(peak, oom_peak)[still], windows)


# ---------------------------------------------------------------------- objects


def status_body(one: Checkpoint, *, now: datetime) -> dict[str, Any]:
    """Return `status` of the checkpoint object."""
    return {
        "lastUpdateTime": _text(now),
        "version": CHECKPOINT_VERSION,
        "cpuHistogram": _histogram_body(one.cpu),
        "memoryHistogram": _histogram_body(one.memory),
        "firstSampleStart": _stamp(one.first),
        "lastSampleStart": _stamp(one.last),
        "totalSamplesCount": one.count,
    }


def _histogram_body(saved: Saved) -> dict[str, Any]:
    return {
        "referenceTimestamp": _stamp(saved.reference),
        "bucketWeights": {_NAMES[bucket]: weight for bucket, weight in saved.weights.items()},
        "totalWeight": saved.total,
    }


def _text(at: datetime | None) -> str | None:
    # Half the time of strftime; times are in UTC.
    return None if at is None else f"{at.isoformat()[:19]}Z"


# References are midnights, and one list of usage has few distinct times: nearly all are spelled already.
@lru_cache(maxsize=16384)
def _stamp(at: int) -> str | None:
    return _text(moment(at))


def windows_text(one: Checkpoint, *, now: datetime) -> str:
    """Return the annotation with the open windows; empty when they are too many to carry."""
    text = msgspec.json.encode({"at": _text(now), "windows": one.windows}).decode()
    return text if len(text) <= LONGEST_WINDOWS else ""


def read_checkpoint(given: VerticalPodAutoscalerCheckpoint) -> Checkpoint:
    """Return the content of a checkpoint object; UnreadableCheckpoint names what is wrong with it."""
    status = given.status
    subject = f"checkpoint {given.metadata.namespace}/{given.metadata.name}"
    if status is None or status.version != CHECKPOINT_VERSION:
        version = "" if status is None else status.version
        raise UnreadableCheckpoint(
            f"version {version!r} is not {CHECKPOINT_VERSION!r}", subject=subject, field="status.version"
        )
    windows = _windows(given, status.last_update_time)
    return Checkpoint(
        container=given.spec.container_name,
        cpu=_saved(status.cpu_histogram, subject, "status.cpuHistogram"),
        memory=_saved(status.memory_histogram, subject, "status.memoryHistogram"),
        first=microseconds(status.first_sample_start),
        last=microseconds(status.last_sample_start),
        count=status.total_samples_count,
        windows=windows or (),
        with_windows=windows is not None,
    )


def _saved(given: HistogramCheckpoint | None, subject: str, where: str) -> Saved:
    if given is None:
        return Saved(ZERO_TIME, {}, 0.0)
    weights = {}
    for bucket, weight in (given.bucket_weights or {}).items():
        if isinstance(weight, bool) or not isinstance(weight, int) or not 0 <= weight < 2**32 or not _is_index(bucket):
            raise UnreadableCheckpoint(
                f"bucket {bucket!r} has the weight {weight!r}", subject=subject, field=f"{where}.bucketWeights"
            )
        weights[int(bucket)] = weight
    return Saved(microseconds(given.reference_timestamp), weights, given.total_weight or 0.0)


def _is_index(text: str) -> bool:
    return len(text) <= 9 and text.isascii() and text.removeprefix("-").isdigit()


def _windows(given: VerticalPodAutoscalerCheckpoint, written: datetime | None) -> tuple[Window, ...] | None:
    """Return the open windows; None when there is no annotation that belongs to this writing of the status."""
    text = (given.metadata.annotations or {}).get(WINDOWS_ANNOTATION, "")
    try:
        body: Mapping[str, Any] = msgspec.json.decode(text) if text else {}
        if not body or body.get("at") != _text(written):
            return None
        return tuple(
            Window(
                pod=str(pod),
                uid=str(uid),
                end=int(end),
                peak=float(peak),
                oom_peak=float(oom_peak),
                last=int(last),
                last_cpu=int(last_cpu),
            )
            for pod, uid, end, peak, oom_peak, last, last_cpu in body.get("windows") or ()
        )
    except (msgspec.DecodeError, TypeError, ValueError, AttributeError, RecursionError):
        return None
