"""Usage that an API server in this process gives as columns, read without an object or a text per container.

Whose numbers stand where is the same from scrape to scrape as long as the same pods are listed and the model has the
same ones, and is then not found out again.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodMetrics, UsageColumns, UsagePages
from kubetide.api.values.codec import decode
from kubetide.stats.buckets import Ints
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.core.model import Model


class Amounts(NamedTuple):
    """Usage of containers: rows of the container table, times, millicores, bytes; and how many are not in the model."""

    rows: Ints
    times: Ints
    cpu: Ints
    memory: Ints
    unknown: int


class _Places(NamedTuple):
    """Where the containers of one page are: those that the model knows, by their place on the page, and their rows."""

    containers: Sequence[tuple[int, str]]
    changes: int
    kept: Ints
    rows: Ints
    unknown: int


class ColumnRows:
    """The rows of a model that columns of usage belong to."""

    def __init__(self) -> None:
        self._places: dict[str, _Places] = {}

    def read(self, model: Model, pages: UsagePages, init: Mapping[ObjectKey, frozenset[str]]) -> Amounts | None:
        """Return the usage of known containers; None where each sample has to be looked at."""
        found: list[tuple[Ints, Ints, Ints, Ints]] = []
        places = {namespace: self._place(model, namespace, page, init) for namespace, page in pages.items()}
        self._places = places
        for place, page in zip(places.values(), pages.values(), strict=True):
            amounts = page.amounts()
            if amounts is None:
                return None
            cpu, memory = (_ints(column)[place.kept] for column in amounts)
            found.append((place.rows, np.full(len(place.rows), microseconds(page.timestamp)), cpu, memory))
        rows, times, cpu, memory = (np.concatenate(column) for column in zip(NOTHING, *found, strict=True))
        if rows.size and np.bincount(rows).max() > 1:
            return None
        return Amounts(rows, times, cpu, memory, sum(place.unknown for place in places.values()))

    def _place(
        self, model: Model, namespace: str, page: UsageColumns, init: Mapping[ObjectKey, frozenset[str]]
    ) -> _Places:
        known, changes = self._places.get(namespace), model.containers.changes
        if known is not None and known.changes == changes and known.containers is page.containers:
            return known
        kept: list[int] = []
        rows: list[int] = []
        unknown = 0
        for place, (pod, name) in enumerate(page.containers):
            key = ObjectKey(namespace, page.names[pod])
            if name in init.get(key, ()):
                continue
            state = model.pods.get(key)
            row = state.containers.get(name) if state is not None else None
            if row is None:
                unknown += 1
                continue
            kept.append(place)
            rows.append(row)
        return _Places(page.containers, changes, _ints(kept), _ints(rows), unknown)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


NOTHING = (_ints(()),) * 4


def listed(pages: UsagePages) -> list[PodMetrics]:
    """Return the samples themselves."""
    return [sample for page in pages.values() for sample in decode(page.items(), list[PodMetrics])]
