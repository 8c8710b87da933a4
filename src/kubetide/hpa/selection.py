"""Samples of one target out of a list for the whole namespace, as the server itself would have selected them.

1. A sample with labels is kept if the selector matches its labels.
2. A sample without labels is kept if its name is that of a pod that the selector matches.

The order of the list stays. Samples are filed by label, so that a thousand selectors over one list do not mean a
thousand passes over it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kubetide.api.metrics import PodMetrics
from kubetide.api.selectors import Selector
from kubetide.hpa.claims import Pair, anchors, is_anchor

MOST_LABELS = 64
"""A sample with more labels than any pod has is looked at each time instead of being filed under all of them."""


class NamespaceSamples:
    """The usage of the pods of one namespace at one time."""

    def __init__(self, items: Sequence[PodMetrics]) -> None:
        self._items = items
        self._by_pair: dict[Pair, list[int]] = defaultdict(list)
        self._unlabelled: dict[str, list[int]] = defaultdict(list)
        self._labelled: list[int] = []
        self._unfiled: list[int] = []
        for position, item in enumerate(items):
            labels = item.metadata.labels
            if not labels:
                self._unlabelled[item.metadata.name].append(position)
                continue
            self._labelled.append(position)
            if len(labels) > MOST_LABELS:
                self._unfiled.append(position)
                continue
            for pair in labels.items():
                self._by_pair[pair].append(position)

    def __len__(self) -> int:
        return len(self._items)

    def select(self, selector: Selector, pod_names: Iterable[str]) -> list[PodMetrics]:
        """Return the samples of the pods that the selector matches; `pod_names` are the matching pods."""
        if not self._unlabelled and not self._unfiled and is_anchor(selector):
            # Every sample filed under one of the pairs is wanted, and no sample is filed under two of them.
            pairs = anchors(selector)
            filed = [position for pair in pairs for position in self._by_pair.get(pair, ())]
            if len(pairs) > 1:
                filed.sort()
            return [self._items[position] for position in filed]
        candidates: Iterable[int] = self._labelled
        if pairs := anchors(selector):
            candidates = {position for pair in pairs for position in self._by_pair.get(pair, ())}
            candidates.update(self._unfiled)
        kept = [position for position in candidates if selector.matches(self._items[position].metadata.labels)]
        if self._unlabelled:
            for name in pod_names:
                kept.extend(self._unlabelled.get(name, ()))
        kept.sort()
        return [self._items[position] for position in kept]


def by_namespace(items: Iterable[PodMetrics]) -> dict[str, list[PodMetrics]]:
    """Split a list of the whole cluster."""
    split: dict[str, list[PodMetrics]] = defaultdict(list)
    for item in items:
        split[item.metadata.namespace].append(item)
    return split
