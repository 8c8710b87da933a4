"""Looks at the replacements of evicted pods and keeps the breakers: in memory, in the VPA's status, and in events."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from kubetide.api.core import Pod
from kubetide.api.events import Event
from kubetide.api.meta import ObjectKey, key_of
from kubetide.api.vpa import VerticalPodAutoscaler
from kubetide.errors import InvalidInput, KubetideError
from kubetide.log import get_logger
from kubetide.vpa.admission.heartbeat import Heartbeat
from kubetide.vpa.admission.mutate import UNLIMITED, fit_pod
from kubetide.vpa.updater import events
from kubetide.vpa.updater.breaker import BreakerState, after_pause, after_replacement, carries, matches, state_from
from kubetide.vpa.updater.budget import Creator
from kubetide.vpa.updater.evictor import Evictor
from kubetide.vpa.updater.inplace import Targets
from kubetide.vpa.updater.memory import Memory
from kubetide.vpa.updater.plan import Observation, new_requests
from kubetide.vpa.updater.settling import replacement_of

log = get_logger("updater")

FORGOTTEN_AFTER = timedelta(hours=1)
"""An eviction whose replacement never came is not waited for any longer."""


class Recorder(Protocol):
    """Takes events."""

    def publish(self, event: Event) -> None:
        """Write the event soon."""
        ...


class BreakerWatch:
    """The breakers of all VPAs during one leadership."""

    def __init__(
        self,
        memory: Memory,
        *,
        workload: Callable[[Creator], list[Pod]],
        evictor: Evictor,
        recorder: Recorder,
        tolerance: float,
        enabled: bool,
    ) -> None:
        self._memory = memory
        self._workload = workload
        self._evictor = evictor
        self._recorder = recorder
        self._tolerance = tolerance
        self.enabled = enabled
        self._written: dict[ObjectKey, BreakerState] = {}
        self._observations: dict[ObjectKey, Observation] = {}

    @property
    def paused(self) -> int:
        """How many VPAs are paused."""
        return sum(state.paused for state in self._memory.breakers.values())

    async def begin_run(
        self, observations: Iterable[Observation], heartbeat: Heartbeat | None, *, now: datetime
    ) -> None:
        """Bring every breaker up to date at the beginning of a run."""
        if not self.enabled:
            return
        since = heartbeat.since if heartbeat is not None and heartbeat.patching else None
        self._observations = {key_of(observation.vpa): observation for observation in observations}
        self._written = {key: state for key, state in self._written.items() if key in self._observations}
        for key, observation in self._observations.items():
            status = observation.vpa.status
            stored = state_from(status.conditions if status is not None else None)
            # What others wrote over is written again: the status is where a restart finds it.
            self._written[key] = stored
            self._memory.breakers.setdefault(key, stored)
            state = self.look(key, now=now)
            if state.paused:
                proved = _proved(observation, state)
                self._memory.breakers[key] = after_pause(state, proved=proved, patching_since=since, now=now)
        await self.publish(now=now)

    def look(self, key: ObjectKey, *, now: datetime) -> BreakerState:
        """Judge the replacements of a VPA's evictions that have come by now."""
        state = self._memory.breakers[key]
        observation = self._observations.get(key)
        if not self.enabled or observation is None:
            return state
        mine = [eviction for eviction in self._memory.evictions if eviction.vpa == key]
        if not mine:
            return state
        claimed: set[str] = set()
        for eviction in sorted(mine, key=lambda e: e.disruption.at):
            pods = [p for p in self._workload(eviction.creator) if p.metadata.uid not in claimed]
            replacement = replacement_of(pods, eviction.disruption)
            if replacement is None:
                if now - eviction.disruption.at >= FORGOTTEN_AFTER:
                    self._memory.evictions.remove(eviction)
                continue
            claimed.add(replacement.metadata.uid)
            self._memory.evictions.remove(eviction)
            expected = (eviction.expected, _expected(observation, replacement))
            good = carries(eviction.before, replacement, *expected, tolerance=self._tolerance)
            state = after_replacement(state, replacement, carries=good, now=now)
        self._memory.breakers[key] = state
        return state

    async def publish(self, *, now: datetime) -> None:
        """Write what changed into statuses and events."""
        for key, observation in self._observations.items():
            state, written = self._memory.breakers[key], self._written[key]
            if (state.strikes, state.paused) != (written.strikes, written.paused):
                await self._publish_one(observation.vpa, written, state, now=now)

    async def _publish_one(
        self, vpa: VerticalPodAutoscaler, before: BreakerState, state: BreakerState, *, now: datetime
    ) -> None:
        key = key_of(vpa)
        if state.paused and not before.paused:
            self._recorder.publish(events.paused(vpa, state.detail))
            log.warning("updates paused", vpa=str(key), reason=state.detail)
        elif before.paused and not state.paused:
            detail = state.detail or "Replacements carry the recommendation again."
            self._recorder.publish(events.resumed(vpa, detail))
            log.info("updates resumed", vpa=str(key), reason=detail)
        try:
            await self._evictor.write_breaker(key, state, now=now)
        except KubetideError as error:
            log.warning("condition cannot be written, trying again with the next run", vpa=str(key), error=str(error))
        else:
            self._written[key] = state


def _expected(observation: Observation, pod: Pod) -> Targets:
    try:
        return new_requests(fit_pod(pod, observation.vpa, observation.ranges, observation.limits))
    except InvalidInput:
        return {}


def _proved(observation: Observation, state: BreakerState) -> bool:
    """Say whether some pod made after the pause carries the recommendation."""
    # Without the safety limits: a pod that they keep as it is would prove nothing.
    unlimited = replace(observation, limits=UNLIMITED)
    for pod in observation.pods:
        created = pod.metadata.creation_timestamp
        if created is None or state.paused_since is None or created <= state.paused_since:
            continue
        expected = _expected(unlimited, pod)
        if expected and matches(pod, expected, tolerance=0.1):
            return True
    return False
