"""Hears of usage as it changes, where the metrics server offers a watch, and wakes the autoscalers it matters to.

Which samples matter is decided in `core.bands`; a woken autoscaler is reconciled as always. Polling goes on beside it:
while there is no watch, because the server is another one or is gone, everything is as without this, which is said
once in the log, in `/readyz` and in `kubetide_hpa_usage_watch`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.scheme import POD_METRICS
from kubetide.clock import Clock
from kubetide.hpa.core.bands import Position, position, reads_usage, wakes
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.observer import PodCache
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.cache.store import Store
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import WatchEvent
from kubetide.kube.metrics_watch import MetricsWatch
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("hpa.watch")

GATHER_SECONDS = 0.2
"""How long samples are gathered before they are looked at: those of one node come together."""


class UsageWatch:
    """Follows the usage of pods, and calls `wake` with the autoscalers whose band it left."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: HpaSettings,
        telemetry: Telemetry,
        rng: random.Random,
        *,
        hpas: Store[HorizontalPodAutoscaler],
        pods: Store[Pod],
        claims: Claims,
        wake: Callable[[list[ObjectKey]], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._least = settings.wake_interval.total_seconds()
        self._options = settings.options
        self._hpas = hpas
        self._pods = pods
        self._matching = PodCache(pods).matching
        self._claims = claims
        self._wake = wake
        self._watch = MetricsWatch(
            client, POD_METRICS, rng, hear=self._hear, changed=self._note, namespace=settings.namespace
        )
        self._usage: dict[ObjectKey, PodMetrics] = {}
        self._changed: set[ObjectKey] = set()
        self._held_back: set[ObjectKey] = set()
        """Autoscalers that were woken too lately to be woken again, though their pods have moved."""
        self._positions: dict[ObjectKey, Position] = {}
        self._woken: dict[ObjectKey, float] = {}
        self._following = telemetry.gauge(
            "kubetide_hpa_usage_watch", "1 while usage is watched, 0 while it is polled only."
        )
        self._wakes = telemetry.counter("kubetide_hpa_wakes_total", "Reconciles that a sample asked for.")

    @property
    def problem(self) -> str:
        """Why usage is polled only; empty while it is watched."""
        return self._watch.problem

    async def run(self) -> None:
        """Follow usage until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_often())
            await self._watch.run()

    def _hear(self, event: WatchEvent[PodMetrics]) -> None:
        # Labels are known of the pods.
        name = ObjectMeta(name=event.key.name, namespace=event.key.namespace)
        self._usage[event.key] = replace(event.object, metadata=name)
        self._changed.add(event.key)

    async def _look_often(self) -> None:
        """Wake autoscalers; while usage is read for those that were woken, samples are gathered for the next."""
        while True:
            await asyncio.sleep(GATHER_SECONDS)
            if (self._changed or self._held_back) and (woken := self.look()):
                self._wakes.inc(len(woken))
                await self._wake(woken)

    def look(self) -> list[ObjectKey]:
        """Return the autoscalers whose pods have moved far enough; each at most once per `--hpa-wake-interval`."""
        now, changed, self._changed = self._clock.monotonic(), self._changed, set()
        touched, self._held_back = self._held_back, set()
        for key in changed:
            pod = self._pods.get(key)
            if pod is None:
                self._usage.pop(key, None)
            else:
                touched.update(self._claims.claiming(key.namespace, pod.metadata.labels or {}))
        woken = []
        for key in sorted(touched):
            hpa = self._hpas.get(key)
            stands = self._stands(key, hpa) if hpa is not None else None
            if hpa is None or stands is None:
                continue
            before = self._positions.get(key)
            if not wakes(before, stands):
                self._positions.setdefault(key, stands)
            elif now - self._woken.get(key, float("-inf")) >= self._least:
                self._positions[key], self._woken[key] = stands, now
                woken.append(key)
            else:
                self._held_back.add(key)
        if len(self._positions) > 2 * len(self._hpas) + 64:
            self._positions = {key: one for key, one in self._positions.items() if key in self._hpas}
            self._woken = {key: at for key, at in self._woken.items() if key in self._hpas}
        return woken

    def _stands(self, key: ObjectKey, hpa: HorizontalPodAutoscaler) -> Position | None:
        if not reads_usage(hpa.spec):
            return None
        pods = self._matching(key.namespace, self._claims.selector(key))
        names = (ObjectKey(key.namespace, pod.metadata.name) for pod in pods)
        usage = [self._usage[name] for name in names if name in self._usage]
        return position(hpa.spec, pods, usage, self._options, now=self._clock.now())

    def _note(self, problem: str) -> None:
        self._following.set(0 if problem else 1)
        if problem:
            log.info("usage is polled, not watched", reason=problem)
        else:
            log.info("usage is watched")
