"""Looks at the replacements of evicted pods and keeps the breakers: in memory, in the VPA's status, and in events."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.conditions import Condition
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.control.recorder import Recorder
from kubetide.log import get_logger
from kubetide.vpa.admission.core.heartbeat import Heartbeat
from kubetide.vpa.admission.core.mutate import UNLIMITED, SizeLimits, fit_pod
from kubetide.vpa.updater.core import events
from kubetide.vpa.updater.core.breaker import (
    BreakerState,
    after_pause,
    after_replacement,
    carries,
    matches,
    state_from,
)
from kubetide.vpa.updater.core.budget import Creator, creator_of
from kubetide.vpa.updater.core.fitting import new_requests
from kubetide.vpa.updater.core.inplace import Targets
from kubetide.vpa.updater.core.memory import Inherited, Memory
from kubetide.vpa.updater.core.plan import Observation
from kubetide.vpa.updater.core.settling import replacement_of, replicas_to_wait_for

log = get_logger("updater")

FORGOTTEN_AFTER = timedelta(hours=1)
"""An eviction whose replacement never came is not waited for any longer."""


class StatusWriter(Protocol):
    """Writes the conditions of VPAs."""

    async def write_breaker(
        self, key: ObjectKey, state: BreakerState, *, now: datetime, known: Sequence[Condition] = ()
    ) -> VerticalPodAutoscaler | None:
        """Write the condition that holds a breaker's state; `known` are the conditions as far as known."""
        ...


class BreakerWatch:
    """The breakers of all VPAs during one leadership."""

    def __init__(
        self,
        memory: Memory,
        *,
        workload: Callable[[Creator], list[Pod]],
        evictor: StatusWriter,
        recorder: Recorder,
        tolerance: float,
        enabled: bool,
        owns: Callable[[str], bool] = lambda namespace: True,
    ) -> None:
        self._owns = owns
        self._memory = memory
        self._workload = workload
        self._evictor = evictor
        self._recorder = recorder
        self._tolerance = tolerance
        self.enabled = enabled
        self._written: dict[ObjectKey, BreakerState] = {}
        self._conditions: dict[ObjectKey, tuple[Condition, ...]] = {}
        self._observations: dict[ObjectKey, Observation] = {}
        self._refused: set[ObjectKey] = set()

    @property
    def paused(self) -> int:
        """How many VPAs are paused."""
        return sum(state.paused for state in self._memory.breakers.values())

    async def begin_run(
        self, observations: Iterable[Observation], heartbeat: Heartbeat | None, *, now: datetime
    ) -> None:
        """Bring every breaker up to date at the beginning of a loop."""
        if not self.enabled:
            return
        since = heartbeat.since if heartbeat is not None and heartbeat.patching else None
        self._observations = {key_of(observation.vpa): observation for observation in observations}
        for key, observation in self._observations.items():
            status = observation.vpa.status
            self._conditions[key] = tuple((status.conditions if status is not None else None) or ())
            stored = state_from(self._conditions[key])
            # What others wrote over is written again: the status is where a restart finds it.
            self._written[key] = stored
            if key not in self._memory.breakers:
                self._memory.breakers[key] = stored
                if stored.awaited is not None:
                    self._memory.inherited[key] = Inherited(after=stored.awaited, noticed=now)
            state = self.look(key, now=now)
            if state.paused:
                proved = _proved(observation, state)
                self._memory.breakers[key] = after_pause(state, proved=proved, patching_since=since, now=now)
        for known in (self._written, self._conditions):
            for key in known.keys() - self._observations.keys():
                del known[key]
        await self.publish(now=now)
        self._refused.clear()

    async def announce(self, key: ObjectKey, pod: Pod, *, now: datetime) -> bool:
        """Write down that a pod is about to be evicted; False when that failed, and it must not be.

        Whoever comes after this process finds it in the status, and looks for the replacement.
        """
        if not self.enabled or key not in self._observations:
            return True
        state = self._memory.breakers[key]
        if state.awaited is None:
            made = (each.metadata.creation_timestamp for each in self._workload(creator_of(pod)))
            state = replace(state, awaited=max((at for at in made if at is not None), default=now))
            self._memory.breakers[key] = state
        return _same(state, self._written[key]) or await self._write(key, state, now=now)

    def refused(self, key: ObjectKey) -> None:
        """Take note that an announced eviction did not happen.

        It will probably be tried again, as where a PodDisruptionBudget stands against it: the announcement stays until
        a loop in which that is not so.
        """
        self._refused.add(key)

    def look(self, key: ObjectKey, *, now: datetime) -> BreakerState:
        """Judge the replacements of a VPA's evictions that have come by now."""
        state = self._memory.breakers[key]
        observation = self._observations.get(key)
        if not self.enabled or observation is None:
            return state
        if key in self._memory.inherited:
            state = self._look_at_inherited(observation, state, now=now)
        claimed: set[str] = set()
        for eviction in self._memory.evictions.get(key, [])[:]:
            pods = [p for p in self._workload(eviction.creator) if p.metadata.uid not in claimed]
            replacement = replacement_of(pods, eviction.disruption)
            if replacement is None:
                settled = eviction.disruption not in self._memory.disruptions.get(eviction.creator, ())
                if settled or now - eviction.disruption.at >= FORGOTTEN_AFTER:
                    self._memory.drop(eviction)
                continue
            claimed.add(replacement.metadata.uid)
            self._memory.drop(eviction)
            expected = (eviction.expected, *_expected(observation, replacement))
            good = carries(eviction.before, replacement, *expected, tolerance=self._tolerance)
            state = after_replacement(state, replacement, carries=good, now=now)
        if state.awaited is not None and not self._memory.awaits(key):
            state = replace(state, awaited=None)
        self._memory.breakers[key] = state
        return state

    def _look_at_inherited(self, observation: Observation, state: BreakerState, *, now: datetime) -> BreakerState:
        """Judge what came of an eviction that another process announced, as far as it can be told.

        Nobody knows whether it happened, nor which pods there were. What was made since is judged by what it should
        be now; the matter is closed once no pod is missing, or, where nobody says how many there should be, once one
        came.
        """
        key = key_of(observation.vpa)
        inherited = self._memory.inherited[key]
        creators = {creator_of(pod) for pod in observation.pods}
        pods = {c: [p for p in self._workload(c) if p.metadata.deletion_timestamp is None] for c in creators}
        came = [(at, p) for group in pods.values() for p in group if (at := p.metadata.creation_timestamp) is not None]
        for at, pod in sorted(came, key=lambda pair: pair[0]):
            expected = _expected(observation, pod)
            if at <= inherited.after or pod.metadata.uid in inherited.judged or not any(expected):
                continue
            inherited.judged.add(pod.metadata.uid)
            good = any(matches(pod, targets, tolerance=self._tolerance) for targets in expected if targets)
            state = after_replacement(state, pod, carries=good, now=now)
        wanted = {c: replicas_to_wait_for(c, observation.stated.get(c) or 0) for c in creators}
        told = any(wanted.values())
        whole = told and all(len(pods[c]) >= wanted[c] for c in creators)
        if whole or (not told and inherited.judged) or now - inherited.noticed >= FORGOTTEN_AFTER:
            del self._memory.inherited[key]
        return state

    async def publish(self, *, now: datetime) -> None:
        """Write what changed into statuses and events."""
        for key, observation in self._observations.items():
            state, written = self._memory.breakers[key], self._written[key]
            if key in self._refused and state == replace(written, awaited=None):
                continue
            if not _same(state, written) and self._owns(key.namespace):
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
        await self._write(key, state, now=now)

    async def _write(self, key: ObjectKey, state: BreakerState, *, now: datetime) -> bool:
        try:
            vpa = await self._evictor.write_breaker(key, state, now=now, known=self._conditions[key])
        except KubetideError as error:
            log.warning("condition cannot be written, trying again with the next loop", vpa=str(key), error=str(error))
            return False
        self._written[key] = state
        if vpa is not None and vpa.status is not None:
            self._conditions[key] = vpa.status.conditions or ()
        return True


def _same(state: BreakerState, written: BreakerState) -> bool:
    return (state.strikes, state.paused, state.awaited) == (written.strikes, written.paused, written.awaited)


def _expected(observation: Observation, pod: Pod) -> tuple[Targets, ...]:
    """Return what a pod made now should request: within the safety limits, and without them.

    Where the usage of a container is unknown, the limits keep its memory as it is: that says nothing about the webhook.
    """
    usage = observation.limits.usage
    known = usage is None or all(container.name in usage for container in pod.spec.containers or ())
    limits = (observation.limits, UNLIMITED) if known else (UNLIMITED,)
    return tuple(_targets(observation, pod, each) for each in limits)


def _targets(observation: Observation, pod: Pod, limits: SizeLimits) -> Targets:
    try:
        return new_requests(fit_pod(pod, observation.vpa, observation.ranges, limits))
    except InvalidInput:
        return {}


def _proved(observation: Observation, state: BreakerState) -> bool:
    """Return whether some pod made after the pause carries the recommendation."""
    for pod in observation.pods:
        created = pod.metadata.creation_timestamp
        if created is None or state.paused_since is None or created <= state.paused_since:
            continue
        # Without the safety limits: a pod that they keep as it is would prove nothing.
        expected = _targets(observation, pod, UNLIMITED)
        if expected and matches(pod, expected, tolerance=0.1):
            return True
    return False
