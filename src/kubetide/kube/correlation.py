"""Which events are worth writing: repeats become a count, floods a summary, the rest silence.

Three rules in turn, with the numbers of Kubernetes' own recorder:

1. more than 10 events within 10 minutes that differ only in their message become one, whose message is
   `(combined from similar events): ` and the latest one;
2. an event seen before raises the count of the one that exists, and no new one is written;
3. each object has 25 events of each type to spend and earns one more every 5 minutes: a flood of warnings does not
   hide that something succeeded.

Pure: times are seconds, and the memory holds at most `capacity` objects.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from kubetide.api.events import Event
from kubetide.kube.flow import TokenBucket

V = TypeVar("V")

CAPACITY = 4096
SIMILAR_LIMIT = 10
SIMILAR_WINDOW_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300
COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """An event to write and how often it happened; `name` is set once it exists."""

    event: Event
    count: int
    first: datetime
    last: datetime
    name: str = ""


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


class Correlator:
    """Decides what to write for each event."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], TokenBucket] = OrderedDict()

    def correlate(self, event: Event, *, now: datetime, monotonic: float) -> tuple[tuple[str, ...], Series] | None:
        """Return the key and the series to write, or None when the event is to be dropped."""
        combined = self._combine(event, monotonic)
        key = (*_similar_key(event), COMBINED if combined else event.message)
        shown = replace(event, message=COMBINED + event.message) if combined else event
        known = self._series.get(key)
        series = (
            replace(known, event=shown, count=known.count + 1, last=now)
            if known is not None
            else Series(event=shown, count=1, first=now, last=now)
        )
        self._remember(self._series, key, series)
        return (key, series) if self._bucket(event).allow(monotonic) else None

    def written(self, key: tuple[str, ...], name: str) -> None:
        """Note the name of the event that now exists for a series; an empty one that it is gone."""
        known = self._series.get(key)
        if known is not None:
            self._series[key] = replace(known, name=name)

    def _combine(self, event: Event, monotonic: float) -> bool:
        key = _similar_key(event)
        similar = self._similar.get(key)
        if similar is None or monotonic - similar.last > SIMILAR_WINDOW_SECONDS:
            similar = _Similar()
        if len(similar.messages) < SIMILAR_LIMIT:
            similar.messages.add(event.message)
            combined = False
        else:
            combined = event.message not in similar.messages
        similar.last = monotonic
        self._remember(self._similar, key, similar)
        return combined

    def _bucket(self, event: Event) -> TokenBucket:
        regarding = event.regarding
        key = (regarding.kind, regarding.namespace, regarding.name, regarding.uid, event.type.value)
        bucket = self._buckets.get(key) or TokenBucket(SPAM_QPS, SPAM_BURST)
        self._remember(self._buckets, key, bucket)
        return bucket

    def _remember(self, memory: OrderedDict[tuple[str, ...], V], key: tuple[str, ...], value: V) -> None:
        memory[key] = value
        memory.move_to_end(key)
        if len(memory) > self._capacity:
            memory.popitem(last=False)


def _similar_key(event: Event) -> tuple[str, ...]:
    regarding = event.regarding
    return (
        regarding.api_version,
        regarding.kind,
        regarding.namespace,
        regarding.name,
        regarding.uid,
        event.type.value,
        event.reason,
    )
