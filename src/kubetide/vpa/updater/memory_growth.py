"""Hears which memory is running out, and gives more of it in place before the kernel OOM kills.

The metrics server tells the updater that leads, as nodes tell it (`metrics.signals_api`): a watch that opens with all
that are in alarm and repeats them while they last. So a new leader knows at once what the last one knew, an alarm that
could not be answered is tried again when it is repeated, and one that is repeated no more is forgotten. How much is
given is decided in `core.growth`; how many in a minute is a budget of its own.
"""

import asyncio
import random
from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.metrics import ContainerSignal, PodSignals
from kubetide.api.objects.scheme import POD_SIGNALS
from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import BOOKMARK, DELETED, WatchEvent
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.metrics_watch import MetricsWatch
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.vpa.admission.core.mutate import resource_patch
from kubetide.vpa.core.grown import GROWN, Grown, grown_text, read_grown
from kubetide.vpa.updater.core import events
from kubetide.vpa.updater.core.disruption import TokenBucket
from kubetide.vpa.updater.core.growth import SETTLE, Growth, grow, readable_growth
from kubetide.vpa.updater.evictor import Attempt, Evictor
from kubetide.vpa.updater.growth_room import GrowthRoom
from kubetide.vpa.updater.observer import UpdaterView
from kubetide.vpa.updater.settings import UpdaterSettings
from kubetide.vpa.updater.telemetry import UpdaterTelemetry

log = get_logger("updater.memory")

STALE_SECONDS: Final = 30.0
"""An alarm that has not been repeated for so long is over, whatever its node meant."""
SILENCE_SECONDS: Final = 30.0
AFTER_FAILURE: Final = timedelta(seconds=30)
_RETRY = Backoff(base=0.5, cap=30.0, jitter=0.5)
_OUT_OF_BUDGET: Final = "--growths-per-minute are used up"

_Key = tuple[str, str]
"""Uid of a pod and name of a container."""


@dataclass(frozen=True, slots=True)
class _Heard:
    signals: PodSignals
    at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What was last decided about a container, and what became of it."""

    growth: Growth
    at: datetime
    problem: str = ""


class MemoryGrowth:
    """Answers alarms while the updater leads."""

    name = "memory-growth"

    def __init__(
        self,
        client: Client,
        view: UpdaterView,
        evictor: Evictor,
        *,
        clock: Clock,
        settings: UpdaterSettings,
        telemetry: UpdaterTelemetry,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._view = view
        self._evictor = evictor
        self._clock = clock
        self._settings = settings
        self._telemetry = telemetry
        self._recorder = recorder
        self._watch = MetricsWatch(
            client,
            POD_SIGNALS,
            rng,
            hear=self._hear,
            changed=self._note,
            namespace=settings.vpa_object_namespace,
            field_selector="memoryAlarm=true",
            silence=SILENCE_SECONDS,
            backoff=_RETRY,
        )
        self._begin()

    def _begin(self) -> None:
        """Begin a term knowing nothing: the watch opens with all there is to know."""
        per_minute = self._settings.growths_per_minute
        self._budget = TokenBucket(rate=per_minute / 60, burst=per_minute, now=self._clock.now())
        self._alarms: dict[ObjectKey, _Heard] = {}
        self._answering: set[ObjectKey] = set()
        self._wake = asyncio.Event()
        self._next: dict[_Key, datetime] = {}
        self._room = GrowthRoom(self._client, self._view, self._clock)
        self._answers: dict[ObjectKey, dict[str, Answer]] = {}

    @property
    def problem(self) -> str:
        """Why nothing is heard of memory that runs out; empty while it would be."""
        return self._watch.problem

    def healthy(self) -> bool:
        """Return True: without the metrics server everything is as without the setting."""
        return True

    async def run(self) -> None:
        """Listen and answer until cancelled."""
        self._begin()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._answer_all(), name="answer alarms")
                group.create_task(self._watch.run(), name="hear alarms")
        finally:
            self._telemetry.hears_alarms.set(0)

    def explain(self, pod: ObjectKey) -> list[dict[str, Any]]:
        """Return what was last decided about the memory of a pod's containers."""
        return [
            {
                "container": name,
                "at": one.at.isoformat(),
                "grown": one.growth.grows and not one.problem,
                "text": one.problem or (readable_growth(one.growth) if one.growth.grows else one.growth.reason),
            }
            for name, one in self._answers.get(pod, {}).items()
        ]

    # ---- hearing

    def _hear(self, event: WatchEvent[PodSignals]) -> None:
        if event.type == BOOKMARK:
            return
        if event.type == DELETED:
            self._alarms.pop(event.key, None)
            return
        self._alarms[event.key] = _Heard(event.object, self._clock.monotonic())
        self._wake.set()

    def _note(self, problem: str) -> None:
        self._telemetry.hears_alarms.set(0 if problem else 1)
        if problem:
            log.warning("memory alarms are not heard", reason=problem)
        else:
            log.info("memory alarms are heard")

    # ---- answering

    async def _answer_all(self) -> None:
        """Answer what is heard, the most urgent first; an answer that hangs holds up nobody else's."""
        free = asyncio.Semaphore(self._settings.concurrency)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                now = self._clock.monotonic()
                self._alarms = {key: one for key, one in self._alarms.items() if now - one.at < STALE_SECONDS}
                heard = {key: one.signals for key, one in self._alarms.items() if key not in self._answering}
                for key in sorted(heard, key=lambda key: _left(heard[key])):
                    del self._alarms[key]
                    self._answering.add(key)
                    group.create_task(self._answer_one(key, heard[key], free))

    async def _answer_one(self, key: ObjectKey, signals: PodSignals, free: asyncio.Semaphore) -> None:
        try:
            await self._answer(key, signals, free)
        finally:
            self._answering.discard(key)
            if key in self._alarms:
                self._wake.set()

    async def _answer(self, key: ObjectKey, signals: PodSignals, free: asyncio.Semaphore) -> None:
        async with free:
            pod = self._view.pods.store.get(key)
            if pod is None or pod.metadata.uid != signals.metadata.uid or pod.metadata.deletion_timestamp is not None:
                return
            vpa = await self._view.targets.controlling(pod.metadata, key.namespace, counts=lambda _: True)
            if vpa is None:
                return
            for container in signals.containers or ():
                now = self._clock.now()
                if container.memory_alarm is None or now < self._next.get((pod.metadata.uid, container.name), now):
                    continue
                try:
                    room = await self._room.of(pod)
                    ranges = self._view.targets.limits_in(key.namespace)
                    growth = grow(pod, vpa, container.name, container.memory_alarm, ranges=ranges, room=room)
                except InvalidInput as error:
                    log.warning("memory cannot be raised", pod=str(key), container=container.name, error=str(error))
                    continue
                if not growth.grows:
                    self._refuse(pod, growth, now)
                elif self._budget.ready_at(now) > now:
                    self._refuse(pod, replace(growth, new=(), reason=_OUT_OF_BUDGET), now)
                else:
                    self._budget.take(now)
                    await self._write(pod, growth, signals.timestamp)

    async def _write(self, pod: Pod, growth: Growth, sampled: datetime | None) -> None:
        key, uid, now = key_of(pod), pod.metadata.uid, self._clock.now()
        # Before the request: what one container is given the next one cannot get.
        self._room.promise(uid, growth.container, growth.new_request)
        self._next[(uid, growth.container)] = now + SETTLE
        grown = {**read_grown(pod.metadata.annotations), growth.container: Grown(growth.need, now)}
        operations = list(chain.from_iterable(resource_patch(pod, growth.new)))
        outcome, error = await self._evictor.resize(pod, operations, noted={GROWN: grown_text(grown)})
        problem = "" if outcome is Attempt.DONE else f"{outcome.value}: {error}"
        self._answers.setdefault(key, {})[growth.container] = Answer(growth, now, problem)
        fields = {"pod": str(key), "container": growth.container, "reason": growth.reason}
        if problem:
            self._next[(uid, growth.container)] = now + AFTER_FAILURE
            if outcome is not Attempt.UNKNOWN:
                self._room.withdraw(uid)
            self._telemetry.growths.labels("failed").inc()
            self._recorder.publish(events.not_grown(pod, replace(growth, reason=problem)))
            log.warning("could not raise memory", **fields, error=problem)
            return
        done = self._clock.now()
        self._telemetry.growths.labels("grown").inc()
        self._telemetry.growth_latency.observe(max((done - (sampled or now)).total_seconds(), 0.0))
        self._recorder.publish(events.grown(pod, growth))
        log.info("raised memory", **fields, limit=growth.limit, new_limit=growth.new_limit)

    def _refuse(self, pod: Pod, growth: Growth, now: datetime) -> None:
        """Keep why a container gets nothing; people are told once per reason."""
        key = key_of(pod)
        answers = self._answers.setdefault(key, {})
        before = answers.get(growth.container)
        answers[growth.container] = Answer(growth, now)
        if before is None or before.growth.reason != growth.reason:
            self._telemetry.growths.labels("not grown").inc()
            self._recorder.publish(events.not_grown(pod, growth))
            log.info("memory is not raised", pod=str(key), container=growth.container, reason=growth.reason)

    def forget(self, pods: Container[ObjectKey], uids: Container[str]) -> None:
        """Drop what is known of pods that are gone."""
        self._answers = {key: one for key, one in self._answers.items() if key in pods}
        self._room.forget(uids)
        self._next = {key: at for key, at in self._next.items() if key[0] in uids}


def _left(signals: PodSignals) -> float:
    """Return in how many seconds the first container of a pod reaches its limit; the most urgent come first."""
    return min((_seconds_left(one) for one in signals.containers or ()), default=float("inf"))


def _seconds_left(container: ContainerSignal) -> float:
    alarm = container.memory_alarm
    if alarm is None:
        return float("inf")
    return (alarm.limit_bytes - alarm.need_bytes) / max(alarm.growth_bytes_per_second, 1.0)
