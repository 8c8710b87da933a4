"""PodMetrics as JSON with places for what differs from scrape to scrape, so that answering is filling in numbers."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kubetide.embedded.apiserver.rest.status import Raw

TIME = b"\0"
"""The place of the time, which no JSON text contains."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A pod whose containers all run: what its metrics report about it, and the rows of its containers."""

    uid: str
    namespace: str
    name: str
    template: bytes
    """What its metrics report, as JSON, with places for the time and for two numbers of each container."""
    containers: tuple[tuple[str, int], ...]
    """Id and row of each."""


@dataclass(frozen=True, slots=True)
class Page:
    """The metrics of the pods of one namespace as a JSON list with the same places, and whose numbers go there."""

    template: bytes
    rows: npt.NDArray[np.intp]


def pages_of(pods: list[Watched]) -> dict[str, Page]:
    """Return the pages of pods that are sorted by namespace."""
    pages: dict[str, Page] = {}
    for namespace, group in groupby(pods, key=lambda pod: pod.namespace):
        members = list(group)
        rows = [row for pod in members for _, row in pod.containers]
        pages[namespace] = Page(b"[%s]" % b",".join([pod.template for pod in members]), np.array(rows, dtype=np.intp))
    return pages


def template(metadata: Raw, containers: list[str]) -> bytes:
    """Return what the metrics of a pod report, with places for the time and for two numbers of each container."""
    usages = [b'{"name":%s,"usage":{"cpu":"%%dn","memory":"%%dKi"}}' % _literal(name) for name in containers]
    return b'{"metadata":%s,%s,"containers":[%s]}' % (_literal(metadata), TIME, b",".join(usages))


def _literal(value: Any) -> bytes:
    """Return a value as JSON that stands for itself in a template."""
    return msgspec.json.encode(value).replace(b"%", b"%%")
