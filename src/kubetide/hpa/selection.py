"""Samples of one target out of a list for the whole namespace, as the server itself would have selected them.

1. A sample with labels is kept if the selector matches its labels.
2. A sample without labels is kept if its name is that of a pod that the selector matches.

The order of the list stays. Samples are filed by the labels that selectors name, each when it is first asked for, so
that a thousand selectors over one list do not mean a thousand passes over it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from kubetide.api.metrics import PodMetrics
from kubetide.api.selectors import Selector
from kubetide.hpa.claims import Pair, anchors, is_anchor


class NamespaceSamples:
    """The usage of the pods of one namespace at one time."""

    def __init__(self, items: Sequence[PodMetrics]) -> None:
        self._items = items
        self._labels = [item.metadata.labels for item in items]
        self._filed: dict[str, defaultdict[str, list[int]]] = {}
        self._unlabelled: dict[str, list[int]] = defaultdict(list)
        if not all(self._labels):
            for position, item in enumerate(items):
                if not item.metadata.labels:
                    self._unlabelled[item.metadata.name].append(position)

    def __len__(self) -> int:
        return len(self._items)

    def select(self, selector: Selector, pod_names: Iterable[str]) -> list[PodMetrics]:
        """Return the samples of the pods that the selector matches; `pod_names` are the matching pods."""
        items = self._items
        pairs = anchors(selector)
        if len(pairs) == 1:
            kept = self._with(pairs[0])
        elif pairs:
            # All anchors are values of one label, so no sample is filed under two of them.
            kept = sorted(chain.from_iterable(self._with(pair) for pair in pairs))
        else:
            kept = self._labelled()
        if not is_anchor(selector):
            kept = [position for position in kept if selector.matches(self._labels[position])]
        if self._unlabelled:
            kept = sorted(chain(kept, *(self._unlabelled.get(name, ()) for name in pod_names)))
        return list(map(items.__getitem__, kept))

    def _with(self, pair: Pair) -> Sequence[int]:
        """Return where samples with a label pair stand, in order."""
        label, value = pair
        filed = self._filed.get(label)
        if filed is None:
            filed = self._filed[label] = defaultdict(list)
            for position, labels in enumerate(self._labels):
                if labels and label in labels:
                    filed[labels[label]].append(position)
        return filed.get(value, ())

    def _labelled(self) -> Sequence[int]:
        return [position for position, labels in enumerate(self._labels) if labels]


def by_namespace(items: Iterable[PodMetrics]) -> dict[str, list[PodMetrics]]:
    """Split a list of the whole cluster."""
    split: dict[str, list[PodMetrics]] = defaultdict(list)
    for item in items:
        split[item.metadata.namespace].append(item)
    return split
