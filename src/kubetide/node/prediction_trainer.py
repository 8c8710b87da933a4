"""Keeps the prediction models alive: restores them, trains them, saves them, lets them go.

Restoring happens once, after the pods are known, because files of pods that are gone are removed then; a directory
that cannot be read removes nothing. A file is written beside its target and renamed, so a kill leaves the old one.
Files are read and written by a worker: a hanging disk keeps models from being saved, and nothing else.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from kubetide.api.objects.core import Node
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.log import get_logger
from kubetide.node.core.compat import RECLAIMABLE_CAPPED
from kubetide.node.core.prediction import checkpoint
from kubetide.node.core.prediction.peak import BUILT_IN, PeakModels, PodUsage
from kubetide.node.core.prediction.reclaimable import (
    EmptyPredictor,
    MinPredictor,
    NoPrediction,
    PodPredictor,
    Predictor,
    PriorityPredictor,
    Reclaimable,
    node_limit,
)
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import P90
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.settings import NodeSettings
from kubetide.stats.saved import Saved
from kubetide.telemetry import Telemetry

log = get_logger("node.prediction")

_HOUSEKEEPING_SECONDS = 60.0


class Prediction:
    """The models of this node and their files."""

    def __init__(
        self,
        settings: NodeSettings,
        clock: Clock,
        store: SeriesStore,
        pods: Callable[[], tuple[PodState, ...]],
        disk: Worker | None = None,
    ) -> None:
        self.models = PeakModels(
            settings.prediction_cpu_histogram_decay_halflife, settings.prediction_memory_histogram_decay_halflife
        )
        self.synced = False
        self._settings = settings
        self._clock = clock
        self._store = store
        self._pods = pods
        self._disk = disk or Inline()
        path = settings.prediction_checkpoint_filepath
        self._directory = Path(path) if path else None
        self._restored = False

    async def run(self) -> None:
        """Train and keep house until cancelled."""
        if not self._restored:
            await self.restore()
            self._restored = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._train_forever(), name="prediction/train")
            group.create_task(self._keep_house(), name="prediction/checkpoints")

    async def _train_forever(self) -> None:
        while True:
            self.train()
            self.synced = True
            await asyncio.sleep(self._settings.prediction_training_interval.total_seconds())

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            if self.synced:
                self.expire()
                self.save_some()

    def train(self) -> None:
        """Add the p90 of the last interval of every pod and of the node."""
        now = self._clock.now()
        end = int(now.timestamp() * 1000)
        start = end - int(self._settings.prediction_training_interval.total_seconds() * 1000)
        ring = self._store.ring
        cpu = ring.query_each(kinds.POD_CPU, kinds.POD_UID, start, end)
        memory = ring.query_each(kinds.POD_MEMORY, kinds.POD_UID, start, end)
        pods = [
            PodUsage(
                pod.uid,
                pod.priority,
                cpu[pod.uid].aggregate(P90) if pod.uid in cpu else None,
                memory[pod.uid].aggregate(P90) if pod.uid in memory else None,
            )
            for pod in self._pods()
        ]
        node_cpu = ring.query(kinds.NODE_CPU, None, start, end).aggregate(P90)
        node_memory = ring.query(kinds.NODE_MEMORY, None, start, end).aggregate(P90)
        self.models.train(now, pods, node_cpu, node_memory)

    def predictor(self, node: Node | None) -> Predictor:
        """Return a fresh predictor for one report; what it finds is limited by what the node can hold."""
        if not self.synced:
            return EmptyPredictor()
        margin = self._settings.prediction_safety_margin_percent
        limit = node_limit(node) if self._settings.version.has(RECLAIMABLE_CAPPED) else None
        cold = self._settings.prediction_cold_start_duration
        return MinPredictor(
            PodPredictor(self.models, self._clock.now(), margin, cold, limit),
            PriorityPredictor(self.models, margin, limit),
        )

    def expire(self) -> None:
        """Drop models that get no samples any more, and their files."""
        gone = self.models.expire(self._clock.now(), self._settings.prediction_model_expiration_duration)
        if gone:
            self._disk.post(partial(self._remove_all, gone), "removing models")

    def save_some(self) -> None:
        """Save the models that are due, a few at a time."""
        if self._directory is None:
            return
        now = self._clock.now()
        due = self.models.due_for_checkpoint(
            now,
            every=self._settings.prediction_model_checkpoint_interval,
            at_most=self._settings.prediction_model_checkpoint_max_per_step,
        )
        models = [(identity, checkpoint.to_json(identity, *self.models.save(identity, now), now)) for identity in due]
        if models:
            self._disk.post(partial(self._write_all, models), "saving models")

    def _write_all(self, models: list[tuple[str, bytes]]) -> None:
        for identity, data in models:
            try:
                self._write(identity, data)
            except OSError as error:
                log.warning("models not saved", model=identity, error=str(error))
                return

    def _write(self, identity: str, data: bytes) -> None:
        assert self._directory is not None
        if "/" in identity or identity in ("", ".", ".."):
            return  # a uid that is no file name cannot be a pod's
        target = self._directory / identity
        temporary = self._directory / f"{identity}.tmp"
        temporary.write_bytes(data)
        os.replace(temporary, target)

    def _remove_all(self, identities: Iterable[str]) -> None:
        for identity in identities:
            self._remove(identity)

    def _remove(self, identity: str) -> None:
        if self._directory is None or "/" in identity or identity in ("", ".", ".."):
            return
        try:
            (self._directory / identity).unlink()
        except OSError as error:
            log.debug("model file not removed", model=identity, error=str(error))

    async def restore(self) -> None:
        """Load all models that have a file."""
        if self._directory is None:
            return
        known = {pod.uid for pod in self._pods()} | BUILT_IN
        try:
            found = await self._disk.call(partial(self._read_all, self._directory, known), "reading models")
        except OSError as error:
            log.warning("models not restored", error=str(error))
            return
        now = self._clock.now()
        for name, (cpu, memory) in found.items():
            for problem in self.models.load(name, cpu, memory, now):
                log.warning("histogram not restored", model=name, problem=problem)
        log.info("models restored", count=len(self.models))

    @staticmethod
    def _read_all(directory: Path, known: Collection[str]) -> dict[str, tuple[Saved | None, Saved | None]]:
        """Return what the files of known models hold; remove what is unreadable or belongs to nobody."""
        directory.mkdir(parents=True, exist_ok=True)
        found: dict[str, tuple[Saved | None, Saved | None]] = {}
        for path in sorted(path for path in directory.iterdir() if path.is_file()):
            if path.suffix == ".tmp" or path.name not in known:
                path.unlink(missing_ok=True)
                continue
            try:
                found[path.name] = checkpoint.from_json(path.read_bytes())
            except (OSError, KubetideError) as error:
                log.warning("model file not readable, removed", model=path.name, error=str(error))
                path.unlink(missing_ok=True)
        return found


# What each predictor reports, for people who want to know which one was the careful one.


class PeakGauges:
    """The gauges of the predictors of one node."""

    def __init__(self, telemetry: Telemetry, node_name: str) -> None:
        self._node_name = node_name
        self._gauge = telemetry.gauge(
            "koordlet_node_predicted_resource_reclaimable",
            "What each predictor says could be overcommitted.",
            ("node", "predictor", "resource", "unit"),
        )

        self._peak = telemetry.gauge(
            "koordlet_node_predicted_resource_peak",
            "What each predictor says prod pods will use at most.",
            ("node", "predictor", "resource", "unit"),
        )

    def show(self, predictor: Predictor) -> None:
        """Set the gauges; a predictor without an answer shows zero."""
        parts: dict[str, Predictor] = {"minPredictor": predictor}
        if isinstance(predictor, MinPredictor):
            parts |= {
                "podReclaimablePredictor": predictor.pods,
                "priorityReclaimablePredictor": predictor.priorities,
            }
        for name, part in parts.items():
            try:
                found = part.result()
            except NoPrediction:
                found = Reclaimable(0, 0)
            self._gauge.labels(self._node_name, name, "cpu", "core").set(found.cpu_millis / 1000)
            self._gauge.labels(self._node_name, name, "memory", "byte").set(found.memory_bytes)
            try:
                peak = part.peak()
            except NoPrediction:
                peak = Reclaimable(0, 0)
            self._peak.labels(self._node_name, name, "cpu", "core").set(peak.cpu_millis / 1000)
            self._peak.labels(self._node_name, name, "memory", "byte").set(peak.memory_bytes)
