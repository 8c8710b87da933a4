"""Whose pods are they: two autoscalers that count the same pods would each answer for the load of both.

Every autoscaler is known by the selector its target had last; a new one claims nothing until its target was read.
A claim is about pods, not about targets: with no pods nothing is ambiguous, and two autoscalers of one Deployment
collide like any others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import NOTHING, Operator, Selector, parse_selector

Pair = tuple[str, str]

MOST_LABELS, MOST_TEXT = 4, 4000
"""Requests, and characters as they stand in a URL, for which it is worth while to ask for a few pods of many."""


@lru_cache(maxsize=8192)
def selector_of(text: str) -> Selector:
    """Parse the selector of a target; the same few come back every reconcile."""
    return parse_selector(text)


def is_anchor(selector: Selector) -> bool:
    """Return whether having one of the anchors is all that the selector asks for."""
    return len(selector.requirements) == 1 and bool(anchors(selector))


@lru_cache(maxsize=8192)
def anchors(selector: Selector) -> tuple[Pair, ...]:
    """Return label pairs of which every matching object has at least one; none if the selector names none.

    Indexes by label pair use them to look at few objects instead of all.
    """
    best: tuple[Pair, ...] = ()
    for requirement in selector.requirements:
        if requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN):
            pairs = tuple((requirement.key, value) for value in requirement.values)
            if not best or len(pairs) < len(best):
                best = pairs
    return best


def narrowed(selectors: Iterable[Selector]) -> dict[str, set[Selector]] | None:
    """Return label selectors that together match all that these do, and which of these each one stands for.

    None where that is too much for a few requests, or one of these may match anything: all is asked for then.
    """
    values: dict[str, dict[str, None]] = defaultdict(dict)
    standing: dict[str, set[Selector]] = defaultdict(set)
    for selector in selectors:
        pairs = anchors(selector)
        if not pairs:
            return None
        label = pairs[0][0]  # they are of one requirement
        values[label].update(dict.fromkeys(value for _, value in pairs))
        standing[label].add(selector)
    size = sum(len(value) + 3 for named in values.values() for value in named)
    if len(values) > MOST_LABELS or size > MOST_TEXT:
        return None
    return {f"{label} in ({','.join(named)})": standing[label] for label, named in values.items()}


class Claims:
    """The table of autoscalers and the selectors of their targets."""

    def __init__(self) -> None:
        self._selectors: dict[ObjectKey, Selector] = {}
        self._by_pair: dict[str, dict[Pair, set[ObjectKey]]] = defaultdict(lambda: defaultdict(set))
        self._anywhere: dict[str, set[ObjectKey]] = defaultdict(set)
        self._changes = 0
        self._answers: dict[ObjectKey, tuple[Sequence[Pod], int, tuple[str, ...]]] = {}

    def register(self, key: ObjectKey) -> None:
        """Make an autoscaler known; it claims nothing yet."""
        self._selectors.setdefault(key, NOTHING)

    def forget(self, key: ObjectKey) -> None:
        """Drop an autoscaler and its claim."""
        self._unlist(key)
        self._selectors.pop(key, None)
        self._answers.pop(key, None)
        self._changes += 1

    def claim(self, key: ObjectKey, selector: Selector) -> None:
        """Replace the claim of a known autoscaler."""
        known = self._selectors.get(key)
        if known is None or known == selector:
            return
        self._changes += 1
        self._unlist(key)
        self._selectors[key] = selector
        if pairs := anchors(selector):
            for pair in pairs:
                self._by_pair[key.namespace][pair].add(key)
        else:
            self._anywhere[key.namespace].add(key)

    def claimants_for(self, key: ObjectKey, pods: Sequence[Pod]) -> tuple[str, ...]:
        """Return the claimants of an autoscaler's pods; while it gives the same list and no claim changes, as before.

        The list must not change: it is recognised by being the very same one.
        """
        known = self._answers.get(key)
        if known is None or known[0] is not pods or known[1] != self._changes:
            known = self._answers[key] = (pods, self._changes, self.claimants(key.namespace, pods))
        return known[2]

    def claimants(self, namespace: str, pods: Iterable[Pod]) -> tuple[str, ...]:
        """Return the keys of all autoscalers that claim one of these pods, sorted."""
        found: set[ObjectKey] = set()
        seen: set[frozenset[tuple[str, str]]] = set()
        for pod in pods:
            labels = pod.metadata.labels or {}
            # Pods of one template carry the same labels: look once.
            shape = frozenset(labels.items())
            if shape not in seen:
                seen.add(shape)
                found.update(self.claiming(namespace, labels))
        return tuple(sorted(str(key) for key in found))

    def selector(self, key: ObjectKey) -> Selector:
        """Return what an autoscaler claims."""
        return self._selectors.get(key, NOTHING)

    def claiming(self, namespace: str, labels: Mapping[str, str]) -> Iterable[ObjectKey]:
        """Return the autoscalers that claim a pod with these labels."""
        by_pair = self._by_pair.get(namespace, {})
        candidates = set(self._anywhere.get(namespace, ()))
        for pair in labels.items():
            candidates.update(by_pair.get(pair, ()))
        return (key for key in candidates if self._selectors[key].matches(labels))

    def _unlist(self, key: ObjectKey) -> None:
        old = self._selectors.get(key)
        if old is None:
            return
        for pair in anchors(old):
            self._by_pair[key.namespace][pair].discard(key)
            if not self._by_pair[key.namespace][pair]:
                del self._by_pair[key.namespace][pair]
        self._anywhere[key.namespace].discard(key)
