"""Compares recorded decisions with what the same cores decide again from the recording.

A recording with `--audit` holds what was decided. Each decision is made again from what could be seen at the time; a
difference means that something decided on what the recording does not hold: checkpoints from before, other settings,
samples between two polls.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubetide.api.objects.meta import ObjectKey
from kubetide.errors import InvalidInput
from kubetide.recording.reader import Recording
from kubetide.replay.core.autoscaling import AutoscalerReplay, Reconcile
from kubetide.replay.core.history import ObjectEvent, RecordedCluster, SeenSample
from kubetide.replay.core.recommending import RecommenderReplay
from kubetide.stats.instants import microseconds, moment

LOOP = timedelta(minutes=1)


@dataclass(slots=True)
class Agreement:
    """How many decisions were made again, and which came out otherwise."""

    made: int = 0
    left_out: int = 0
    """Decisions that the recording does not hold enough for."""
    differences: list[str] = field(default_factory=list)


def recorded_cluster(recording: Recording) -> RecordedCluster:
    """Return the objects and samples of a live recording, in the order in which they could be seen."""
    rows = recording.rows("objects")
    names = ("time", "event", "kind", "namespace", "name", "object")
    events = [
        ObjectEvent(at, event, kind, ObjectKey(namespace or "", name), text)
        for at, event, kind, namespace, name, text in zip(*(rows[each] for each in names), strict=True)
    ]
    who, samples = recording.containers, []
    for found, seen, windows in recording.samples():
        columns = (seen, found.times, found.containers, found.cpu_micros, found.memory_bytes, windows)
        for when, at, number, cpu, memory, window in zip(*(each.tolist() for each in columns), strict=True):
            key = ObjectKey(who.namespace[number], who.pod[number])
            samples.append(SeenSample(when, at, key, who.container[number], cpu, memory, window))
    if not events or any(sample.seen < 0 for sample in samples):
        raise InvalidInput("is not a live recording: it has no objects", subject=str(recording.path))
    samples.sort(key=lambda sample: sample.seen)
    return RecordedCluster(events, samples)


def audit_recommender(recording: Recording, *, interval: timedelta = LOOP) -> Agreement:
    """Repeat every loop of the recommender and compare each recommendation with the status of the time.

    What a loop wrote must come out the same to the bit. Between two writes a status may lag behind, by what the
    recommender leaves for later because nobody decides on it.
    """
    decided = _decisions(recording, "VerticalPodAutoscaler")
    if not decided:
        return Agreement()
    cluster, found = recorded_cluster(recording), Agreement()
    first, end = decided[0][0], moment(recording.manifest.end * 1_000_000)
    assert end is not None
    # Loops keep their rhythm, so the first one that decided something tells when all others were.
    loops = [first + number * interval for number in range(int((end - first) / interval) + 1)]
    current: dict[ObjectKey, Any] = {}
    place = 0
    replay = RecommenderReplay(cluster)
    for now, recommended in replay.run(loops):
        written: set[ObjectKey] = set()
        while place < len(decided) and decided[place][0] <= now:
            current[decided[place][1]] = decided[place][2]
            written.add(decided[place][1])
            place += 1
        for key in sorted(current.keys() | recommended.keys()):
            found.made += 1
            before, again = current.get(key), recommended.get(key)
            if before != again and (key in written or not replay.can_stay(key, before)):
                found.differences.append(f"VPA {key} at {now.isoformat()}: {_text(before)}, again {_text(again)}")
    return found


def audit_autoscaler(recording: Recording) -> Agreement:
    """Repeat every reconcile of the horizontal autoscaler and compare the counts."""
    decided = _decisions(recording, "HorizontalPodAutoscaler")
    found = Agreement()
    if not decided:
        return found
    replay = AutoscalerReplay(recorded_cluster(recording))
    again = replay.run([Reconcile(at, key) for at, key, _ in decided])
    for (at, key, line), (_, desired) in zip(decided, again, strict=True):
        if desired is None or line["current"] is None:
            found.left_out += 1
            continue
        found.made += 1
        if desired != line["desired"]:
            found.differences.append(f"HPA {key} at {at.isoformat()}: {line['desired']}, again {desired}")
    return found


def _decisions(recording: Recording, kind: str) -> list[tuple[datetime, ObjectKey, Any]]:
    rows = recording.rows("decisions")
    names = ("time", "kind", "namespace", "name", "decision")
    found = []
    for at, of, namespace, name, text in zip(*(rows[each] for each in names), strict=True):
        when = moment(at)
        if of == kind and when is not None:
            found.append((when, ObjectKey(namespace or "", name), msgspec.json.decode(text)))
    return sorted(found, key=lambda each: (microseconds(each[0]), each[1]))


def _text(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()
