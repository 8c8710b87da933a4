"""The usage of the pods of a namespace, filed so that the samples of one target are found without a search.

Samples are selected as the server itself would have selected them. From one sync period to the next the same pods are
listed in the same order, so where the samples of a target stand is worked out once (`Filing`) and only the values are
new. `millis` gives them as plain numbers for autoscalers that are looked at together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from kubetide.api.objects.metrics import PodMetrics, UsageColumns
from kubetide.api.values.codec import decode
from kubetide.api.values.quantity import milli_value
from kubetide.api.values.selectors import Selector
from kubetide.errors import QuantityError
from kubetide.hpa.core.claims import Pair, anchors, is_anchor
from kubetide.hpa.core.samples import ZERO_TIME, MetricFailure, plain_amounts, repeated, window_of

NOT_PLAIN = -1
"""In place of a value: there is more to say about this sample than a number."""
LARGEST_PLAIN = 2**50
"""Sums of so many thousandths, a petabyte and more, still fit 64 bits for thousands of pods."""


class Filing:
    """Which samples there are in a list, in order, and where those with a label stand."""

    def __init__(self, names: Sequence[str], labels: Sequence[Mapping[str, str] | None]) -> None:
        self.names = names
        self.labels = labels
        self._filed: dict[str, defaultdict[str, list[int]]] = {}
        self._unlabelled: dict[str, list[int]] = defaultdict(list)
        if not all(self.labels):
            for position, (name, found) in enumerate(zip(names, labels, strict=True)):
                if not found:
                    self._unlabelled[name].append(position)

    def lists(self, names: Sequence[str], labels: Sequence[Mapping[str, str] | None]) -> bool:
        """Return whether these are the samples that are filed, in the same order."""
        if names is self.names and labels is self.labels:
            return True
        return names == self.names and labels == self.labels

    def positions(self, selector: Selector, pod_names: Iterable[str]) -> Sequence[int]:
        """Return where the samples of the pods stand that the selector matches; `pod_names` are the matching pods."""
        pairs = anchors(selector)
        if len(pairs) == 1:
            kept = self._with(pairs[0])
        elif pairs:
            # All anchors are values of one label, so no sample is filed under two of them.
            kept = sorted(chain.from_iterable(self._with(pair) for pair in pairs))
        else:
            kept = [position for position, labels in enumerate(self.labels) if labels]
        if not is_anchor(selector):
            kept = [position for position in kept if selector.matches(self.labels[position])]
        if self._unlabelled:
            kept = sorted(chain(kept, *(self._unlabelled.get(name, ()) for name in pod_names)))
        return kept

    def _with(self, pair: Pair) -> Sequence[int]:
        label, value = pair
        filed = self._filed.get(label)
        if filed is None:
            filed = self._filed[label] = defaultdict(list)
            for position, labels in enumerate(self.labels):
                if labels and label in labels:
                    filed[labels[label]].append(position)
        return filed.get(value, ())


class NamespaceSamples:
    """The usage of the pods of one namespace at one time."""

    def __init__(self, items: Sequence[PodMetrics] | UsageColumns, before: Filing | None = None) -> None:
        """`before` is the filing of an earlier list, which is kept if it is that of this one too."""
        self._millis: dict[str, list[int]] = {}
        self._span: tuple[datetime, datetime] | None = None
        self._columns: UsageColumns | None = None
        self._listed: Sequence[PodMetrics] | None = None
        if isinstance(items, UsageColumns):
            self._columns = items
            names, labels = items.names, items.labels
            if names:
                self._span = items.timestamp, items.timestamp
        else:
            self._listed = items
            names, labels = [item.metadata.name for item in items], [item.metadata.labels for item in items]
        self.filing = before if before is not None and before.lists(names, labels) else Filing(names, labels)

    @property
    def _items(self) -> Sequence[PodMetrics]:
        """The samples themselves, which are made of columns when first needed."""
        if self._listed is None:
            self._listed = decode(self._columns.items(), list[PodMetrics]) if self._columns is not None else ()
        return self._listed

    def __len__(self) -> int:
        return len(self.filing.names)

    def span(self) -> tuple[datetime, datetime]:
        """Return when the oldest and the newest sample were taken."""
        if self._span is None:
            times = [item.timestamp or ZERO_TIME for item in self._items]
            self._span = min(times, default=ZERO_TIME), max(times, default=ZERO_TIME)
        return self._span

    def select(self, selector: Selector, pod_names: Iterable[str]) -> list[PodMetrics]:
        """Return the samples of the pods that the selector matches; `pod_names` are the matching pods."""
        return list(map(self._items.__getitem__, self.filing.positions(selector, pod_names)))

    def keep(
        self, pick: Callable[[Sequence[PodMetrics]], tuple[PodMetrics, ...]]
    ) -> Callable[[], Sequence[PodMetrics]]:
        """Return the picked samples but the last, for later: a whole list must not be kept for the sake of a few."""
        if self._columns is None:
            picked = pick(self._items)[:-1]
            return lambda: picked
        return lambda: pick(self._items)[:-1]

    def millis(self, resource: str) -> list[int]:
        """Return the usage of each sample in thousandths where it is plain, `NOT_PLAIN` elsewhere; at the end a 0."""
        found = self._millis.get(resource)
        if found is None:
            found = self._millis[resource] = self._amounts(resource)
            found.append(0)
        return found

    def _amounts(self, resource: str) -> list[int]:
        columns = self._columns.millis(resource) if self._columns is not None else None
        if columns is not None and max(columns, default=0) <= LARGEST_PLAIN:
            return columns
        found = plain_amounts(self._items, resource)
        if found is None or not all(map(_is_window, {item.window for item in self._items})):
            return [_plain_millis(item, resource) for item in self._items]
        return found


def by_namespace(items: Iterable[PodMetrics]) -> dict[str, list[PodMetrics]]:
    """Split a list of the whole cluster."""
    split: dict[str, list[PodMetrics]] = defaultdict(list)
    for item in items:
        split[item.metadata.namespace].append(item)
    return split


def _is_window(text: str) -> bool:
    try:
        window_of(text)
    except MetricFailure:
        return False
    return True


def _plain_millis(item: PodMetrics, resource: str) -> int:
    """Return what `resource_reading` makes of a sample, if that is a number like any other."""
    containers = item.containers
    if not containers or (len(containers) > 1 and repeated(containers)):
        return NOT_PLAIN
    total = 0
    if not _is_window(item.window):
        return NOT_PLAIN
    try:
        for one in containers:
            usage = one.usage
            if not usage or resource not in usage:
                return NOT_PLAIN
            value = milli_value(usage[resource])
            if value < 0:
                return NOT_PLAIN
            total += value
    except QuantityError:
        return NOT_PLAIN
    return total if total <= LARGEST_PLAIN else NOT_PLAIN
