"""Keeps samples on disk without ever waiting for the disk: batches go to the history through a worker.

The history belongs to the worker: it is opened, written, trimmed and closed there, and this side only looks at what is
wrong with it. A disk that does not answer at the start leaves the window empty; what was sampled before it answers is
not in the file.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from kubetide.clock import Clock
from kubetide.log import get_logger
from kubetide.node.core.series.ring import Key, Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.host.worker import Worker
from kubetide.node.series_history import History
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry

log = get_logger("node.history")

OPEN_SECONDS = 10.0
"""How long a start waits for the past."""


class DiskJournal:
    """The journal of a store: its history, and the worker that owns it."""

    def __init__(
        self,
        settings: NodeSettings,
        store: SeriesStore,
        clock: Clock,
        disk: Worker,
        telemetry: Telemetry,
        node_name: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._disk = disk
        self._history: History | None = None
        self._dropped = 0
        telemetry.gauge(
            "kubetide_node_history_working", "Whether samples are kept on disk at the moment.", ("node",)
        ).labels(node_name).set_function(lambda: float(not self.problem()))
        telemetry.gauge(
            "kubetide_node_history_lost_batches", "Batches of samples that are not in the history on disk.", ("node",)
        ).labels(node_name).set_function(lambda: float(self.lost))

    @property
    def lost(self) -> int:
        """Batches that are in no file."""
        return self._dropped + (self._history.lost if self._history is not None else 0)

    def problem(self) -> str:
        """Return why samples are not kept on disk at the moment; empty while they are."""
        if (hanging := self._disk.hanging()) != "":
            return hanging
        return "not open yet" if self._history is None else self._history.problem

    async def open(self) -> None:
        """Open the file, fill the window from it, and write to it from now on."""
        ring = Ring(self._store.ring.retention_seconds)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                batches = await self._disk.call(partial(self._open, ring, self._now()), "opening the sample history")
        except TimeoutError:
            log.warning("sample history does not open, the window starts empty", seconds=OPEN_SECONDS)
        else:
            self._store.ring = ring
            log.info("sample history opened", path=self._settings.metric_history_path, batches=batches)
        self._store.journal = self

    def append(self, producer: str, interval: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        """Have one batch written; while the disk hangs, batches beyond a limit are lost."""
        if not self._disk.post(partial(self._write, producer, interval, at, samples), "writing samples"):
            self._dropped += 1

    def trim(self) -> None:
        """Have what is too old dropped."""
        self._disk.post(partial(self._trim, self._now()), "trimming the sample history")

    async def close(self) -> None:
        """Finish the file after what was handed over."""
        self._store.journal = None
        await self._disk.call(self._close, "closing the sample history")

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    # ---- on the worker

    def _open(self, ring: Ring, now: int) -> int:
        settings = self._settings
        self._history = History(
            Path(settings.metric_history_path) / "samples.sqlite",
            retention=settings.metric_history_retention,
            max_bytes=settings.metric_history_max_mb * 1024 * 1024,
        )
        return self._history.restore(ring, now)

    def _write(self, producer: str, interval: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        if self._history is not None:
            self._history.append(producer, interval, at, samples)

    def _trim(self, now: int) -> None:
        if self._history is not None:
            self._history.trim(now)

    def _close(self) -> None:
        if self._history is not None:
            self._history.close()
