"""PodMetrics with places for what differs from scrape to scrape, so that answering is filling in numbers.

Readers in this process are given the numbers as columns (`Scraped.columns`); JSON is made for those who read it, once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, groupby
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kubetide.api.objects.metrics import UsageColumns
from kubetide.embedded.apiserver.rest.status import Raw

TIME = b"\0"
"""The place of the time, which no JSON text contains."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A pod whose containers all run: what its metrics report about it, and the rows of its containers."""

    uid: str
    namespace: str
    name: str
    labels: dict[str, str] | None
    template: bytes
    """What its metrics report, as JSON, with places for the time and for two numbers of each container."""
    containers: tuple[tuple[str, int], ...]
    """Id and row of each."""
    container_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The metrics of the pods of one namespace as a JSON list with the same places, and whose numbers go there."""

    template: bytes
    rows: npt.NDArray[np.intp]
    names: list[str]
    labels: list[dict[str, str] | None]
    containers: list[tuple[int, str]]
    firsts: npt.NDArray[np.intp] | None
    """Where the containers of each pod begin; None where each pod has one."""


@dataclass(slots=True)
class Scraped:
    """What the scrape of a moment shows: nanos of CPU and KiB of memory by row, and on which pages."""

    at: datetime
    window: str
    stamp: bytes
    numbers: npt.NDArray[np.int64]
    pages: dict[str, Page]
    _items: dict[str, bytes] = field(default_factory=dict)

    def items(self, namespace: str) -> bytes:
        """Return the metrics of a namespace as a JSON list, made once."""
        found = self._items.get(namespace)
        if found is None:
            page = self.pages.get(namespace)
            found = b"[]"
            if page is not None:
                values = tuple(self.numbers[:, page.rows].T.ravel().tolist())
                found = page.template.replace(TIME, self.stamp) % values
            self._items[namespace] = found
        return found

    def columns(self, namespace: str) -> UsageColumns:
        """Return the metrics of a namespace that has pods as columns, which keep this alive and not the other way."""
        page = self.pages[namespace]
        return UsageColumns(
            names=page.names,
            labels=page.labels,
            timestamp=self.at.astimezone(UTC).replace(microsecond=0),
            window=self.window,
            millis=partial(self._millis, page),
            containers=page.containers,
            amounts=partial(self._amounts, page),
            items=partial(self.items, namespace),
        )

    def _millis(self, page: Page, resource: str) -> list[int] | None:
        """Return thousandths as a reader of the texts would find them: CPU in nanos, rounded up, memory in KiB."""
        if resource == "cpu":
            values = -(-self.numbers[0, page.rows] // 1_000_000)
        elif resource == "memory":
            values = self.numbers[1, page.rows] * 1_024_000
        else:
            return None
        if len(values) and values.min() < 0:
            return None
        if page.firsts is not None:
            values = np.add.reduceat(values, page.firsts)
        found: list[int] = values.tolist()
        return found

    def _amounts(self, page: Page) -> tuple[list[int], list[int]] | None:
        """Return what a reader of the texts would find in every container."""
        nanos, kibibytes = self.numbers[:, page.rows]
        if len(page.rows) and min(nanos.min(), kibibytes.min()) < 0:
            return None
        return (-(-nanos // 1_000_000)).tolist(), (kibibytes * 1024).tolist()


def pages_of(pods: list[Watched]) -> dict[str, Page]:
    """Return the pages of pods that are sorted by namespace."""
    pages: dict[str, Page] = {}
    for namespace, group in groupby(pods, key=lambda pod: pod.namespace):
        members = list(group)
        counts = [len(pod.containers) for pod in members]
        pages[namespace] = Page(
            template=b"[%s]" % b",".join([pod.template for pod in members]),
            rows=np.array([row for pod in members for _, row in pod.containers], dtype=np.intp),
            names=[pod.name for pod in members],
            labels=[pod.labels for pod in members],
            containers=[(place, name) for place, pod in enumerate(members) for name in pod.container_names],
            firsts=None if max(counts) == 1 else np.array([0, *accumulate(counts[:-1])], dtype=np.intp),
        )
    return pages


def template(metadata: Raw, containers: Sequence[str]) -> bytes:
    """Return what the metrics of a pod report, with places for the time and for two numbers of each container."""
    usages = [b'{"name":%s,"usage":{"cpu":"%%dn","memory":"%%dKi"}}' % _literal(name) for name in containers]
    return b'{"metadata":%s,%s,"containers":[%s]}' % (_literal(metadata), TIME, b",".join(usages))


def _literal(value: Any) -> bytes:
    """Return a value as JSON that stands for itself in a template."""
    return msgspec.json.encode(value).replace(b"%", b"%%")
