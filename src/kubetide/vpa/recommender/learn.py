"""Second step of a loop: pods, usage and OOM kills into the aggregates that feed every VPA.

Pods first, so that usage finds its container; OOM kills after the samples of the same loop, except those that happened
before anybody looked, which open a memory window. Pods that are gone leave last: their final samples still count.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.log import get_logger
from kubetide.vpa.core.compat import PODS_LEAVE_AFTER_SAMPLES
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.coordination.coordinated import CoordinatedSizes
from kubetide.vpa.recommender.core.evidence.heaps import HeapWatch, never_shrinking
from kubetide.vpa.recommender.core.evidence.node_signals import SignalEffects, SignalRules, with_signals
from kubetide.vpa.recommender.core.groups import scopes_of
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, OomRule, raised
from kubetide.vpa.recommender.core.usage.columns import ColumnRows
from kubetide.vpa.recommender.core.usage.feeding import (
    NO_BOUNDS,
    PodFeed,
    Refused,
    UsageBatch,
    claim_windows,
    feed,
    feed_oom,
    gather,
    missed,
)
from kubetide.vpa.recommender.core.usage.plausible import Bounds, RefusalReason
from kubetide.vpa.recommender.observer import Observer
from kubetide.vpa.recommender.prometheus import PrometheusHistory, load_history
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry

log = get_logger("vpa.recommender")

METRICS_CLIENT = "default-metrics-client"
HEAPS_INTERVAL = timedelta(minutes=10)


class Learner:
    """Feeds the model with what the observer sees."""

    def __init__(
        self,
        model: Model,
        observer: Observer,
        *,
        clock: Clock,
        settings: RecommenderSettings,
        telemetry: RecommenderTelemetry,
        learned: LearnedSizes,
        coordinated: CoordinatedSizes,
    ) -> None:
        self._model = model
        self._coordinated = coordinated
        self._learned = learned
        self._observer = observer
        self._clock = clock
        self._settings = settings
        self._telemetry = telemetry
        # A shard that followed all pods would save nothing.
        self._feed = PodFeed(track_all=not settings.memory_saver and settings.shard_of[1] == 1)
        self._columns = ColumnRows()
        self._scoped = settings.gate("DaemonSetScope")
        self._signal_rules = SignalRules(
            peaks=settings.cpu_peaks,
            without_page_cache=settings.memory_without_page_cache,
            throttled_ratio=settings.throttled_cpu_bump_up_ratio,
        )
        self._effects: SignalEffects | None = None
        self._heaps, self._heaps_judged = HeapWatch(), clock.now()
        self._held: list[Oom] = []
        """OOM kills that a checkpoint which is not read yet may know of already."""

    async def read_history(self, history: PrometheusHistory, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Fill the model with what Prometheus remembers of the namespaces that are wanted."""
        self._report_refused(await load_history(history, self._model, self._bounds({}), wanted))

    def forget_namespaces(self, leaves: Callable[[str], bool]) -> None:
        """Forget all there is in namespaces that are another replica's from now on."""
        self._telemetry.quality.release(self._model.forget_namespaces(leaves))
        self._feed.forget_namespaces(leaves)
        self._held = [oom for oom in self._held if not leaves(oom.namespace)]

    def load_pods(self) -> None:
        """Bring the model's pods up to date, with the memory windows that were open before a restart."""
        now = self._clock.now()
        # With tracking limited to matched pods, a change of VPAs may make any pod interesting.
        again = not self._feed.track_all
        scopes = scopes_of(self._model, self._observer.nodes.labels) if self._scoped else None
        pods = self._observer.pods.store
        self._feed.sync(self._model, pods.values(), now=now, all_again=again, scopes=scopes, version=pods.changes)
        for source, count in self._feed.take_sources().items():
            self._telemetry.reads.labels(source).inc(count)
        if not self._settings.followed.has(PODS_LEAVE_AFTER_SAMPLES):
            self.delete_removed_pods()
        claim_windows(self._model)

    def take_early(self) -> None:
        """Take the OOM kills that happened before anybody looked."""
        now = self._clock.now()
        early = [*self._held, *self._observer.take_early()]
        self._held = [oom for oom in early if self._history_unknown(oom)]
        ready = [oom for oom in early if not self._history_unknown(oom)]
        for oom in list(missed(ready, self._model)):
            self._take_oom(oom, now)

    async def load_metrics(self) -> None:
        """Add the usage of all containers, then the OOM kills since the last loop."""
        now, model = self._clock.now(), self._model
        try:
            usage = await self._observer.usage(model)
        except KubetideError:
            self._telemetry.responses.labels("true", METRICS_CLIENT).inc()
            raise
        else:
            self._telemetry.responses.labels("false", METRICS_CLIENT).inc()
            bounds = self._bounds(self._feed.nodes)
            init = self._feed.init_containers
            batch = gather(model, usage, now=now, init=init, bounds=bounds, columns=self._columns)
            self._report_refused(batch.refused)
            batch = await self._as_nodes_know(batch)
            if self._held:
                # Their OOM kills come first, or they would be too old for the window that these samples open.
                batch = batch.without(self._rows(self._held))
            slots = model.containers.aggregate[batch.rows]
            self._coordinated.add(slots, batch.cpu, now)
            fed = feed(model, batch)
            if self._settings.never_shrinking_condition:
                self._heaps.add(batch.rows[fed.memory], batch.times[fed.memory], batch.memory[fed.memory])
                if now - self._heaps_judged >= HEAPS_INTERVAL:
                    self._heaps_judged = now
                    never_shrinking(self._heaps, model.vpas.values())
            quality = self._telemetry.quality
            quality.judge(CPU, slots[fed.cpu], batch.cpu[fed.cpu] / 1000.0)
            quality.judge(MEMORY, slots[fed.memory], batch.memory[fed.memory].astype(float))
            cpu, memory = fed.cpu & (slots >= 0), fed.memory & (slots >= 0)
            self._learned.add(
                slots[cpu], batch.cpu[cpu] / 1000.0, slots[memory], batch.memory[memory].astype(np.float64)
            )
            if batch.unknown and self._feed.track_all:
                log.debug("usage of unknown containers", containers=batch.unknown)
        finally:
            for oom in self._observer.take():
                self._take_oom(oom, now)

    async def _as_nodes_know(self, batch: UsageBatch) -> UsageBatch:
        """Return the samples with what nodes know of their containers, and raised where they reached their limit."""
        if not self._signal_rules.any:
            return batch
        signals = await self._observer.signals()
        batch, self._effects = with_signals(self._model, batch, signals, self._signal_rules)
        self._telemetry.throttled.inc(int(self._effects.throttled.sum()))
        self._telemetry.signalled.set(int(self._effects.told.sum()))
        return batch

    def effect_of(self, slots: Iterable[int]) -> dict[str, Any] | None:
        """Return what signals of nodes did to the last samples of some aggregates; None where they are not used."""
        return None if self._effects is None else self._effects.of(slots)

    def delete_removed_pods(self) -> None:
        """Let the pods leave that were found gone, and fold what is known of them."""
        self._feed.delete_removed(self._model)
        self._telemetry.quality.release(self._model.fold_departed(now=self._clock.now()))

    def collect_garbage(self) -> None:
        """Drop aggregates that say nothing any more, once an hour; their checkpoints may shrink."""
        resolves = {key: vpa.resolves for key, vpa in self._model.vpas.items()}
        dropped = self._model.collect_garbage(now=self._clock.now(), has_controller=resolves)
        if dropped is None:
            return
        for one in dropped:
            for vpa in one.labels.vpas.values():
                if one.container in vpa.checkpoints:
                    vpa.checkpoints[one.container].count = 0
        self._telemetry.quality.release([one.slot for one in dropped])
        self._observer.seen.keep(self._observer.pods.store.keys())

    def _history_unknown(self, oom: Oom) -> bool:
        pod = self._model.pods.get(ObjectKey(oom.namespace, oom.pod))
        return pod is not None and any(not vpa.loaded for vpa in pod.labels.vpas.values())

    def _bounds(self, nodes: Mapping[ObjectKey, str]) -> Bounds:
        if self._settings.upstream_behavior:
            return NO_BOUNDS
        return Bounds(self._observer.nodes.capacity, nodes, self._settings.max_sample_skew)

    def _report_refused(self, refused: Mapping[RefusalReason, Refused]) -> None:
        for reason, found in refused.items():
            self._telemetry.refused.labels(reason.value).inc(found.count)
            log.warning("samples cannot be true, refused", reason=reason, count=found.count, example=found.example)

    def _rows(self, ooms: Iterable[Oom]) -> Iterator[int]:
        for oom in ooms:
            pod = self._model.pods.get(ObjectKey(oom.namespace, oom.pod))
            if pod is not None and oom.container in pod.containers:
                yield pod.containers[oom.container]

    def _take_oom(self, oom: Oom, now: datetime) -> None:
        if oom.at - now > self._settings.max_sample_skew and not self._settings.upstream_behavior:
            # The OOM kill is true, its date is not: dated ahead it would keep every later sample out.
            oom = replace(oom, at=now)
        counted = feed_oom(self._model, oom, now=now)
        if counted is None:
            if self._feed.track_all:
                log.debug("out of memory in an unknown container", pod=f"{oom.namespace}/{oom.pod}")
            return
        pod = self._model.pods[ObjectKey(oom.namespace, oom.pod)]
        row = pod.containers[oom.container]
        fields = {"pod": f"{oom.namespace}/{oom.pod}", "container": oom.container, "counted": counted}
        table = self._model.containers
        if oom.rule is OomRule.KILLED:
            log.info("out of memory", **fields)
            self._telemetry.quality.judge(MEMORY, table.aggregate[[row]], table.oom_peak[[row]], oom=True)
        else:
            log.info("memory was running out", **fields)
            for vpa in pod.labels.vpas.values():
                vpa.near_ooms[oom.container] = oom
        if counted:
            self._learned.add_oom(int(table.aggregate[row]), float(table.oom_need(row, oom.memory_bytes)))
        if not self._settings.oom_floor:
            return
        needed, half_life = float(table.oom_need(row, oom.memory_bytes)), self._settings.oom_floor_half_life
        for vpa in pod.labels.vpas.values():
            floor = vpa.floors.get(oom.container)
            vpa.floors[oom.container] = raised(floor, needed, at=oom.at, half_life=half_life)
