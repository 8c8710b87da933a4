"""The updater: observe, plan, apply, once per interval and only while leading.

admission lease not fresh, or pods come back unpatched  -> nothing is done in this loop
replacements of earlier evictions                        -> breakers (`core/breaker.py`)
VPAs with their pods                                     -> candidates (`core/plan.py`)
candidates                                               -> evictions and resizes (`executor.py`)
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kubetide import tracing
from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import Event
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.core.ranges import NO_RANGES, ShardMode, range_of
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.control.sharing import leadership_of
from kubetide.kube.handover import compare_deployed
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.admission.core.heartbeat import Heartbeat
from kubetide.vpa.updater.actions import Disruptor
from kubetide.vpa.updater.announcements import Announcements
from kubetide.vpa.updater.core.breaker import CLOSED, state_from
from kubetide.vpa.updater.core.budget import Creator
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.plan import Judgement, Observation, PlanRules, VpaPlan, plan
from kubetide.vpa.updater.core.priority import RankRules
from kubetide.vpa.updater.core.settling import outstanding, replicas_to_wait_for
from kubetide.vpa.updater.evictor import Evictor
from kubetide.vpa.updater.executor import DisruptionLimiters, LoopExecution
from kubetide.vpa.updater.explain import trace
from kubetide.vpa.updater.memory_growth import MemoryGrowth
from kubetide.vpa.updater.observer import UpdaterView
from kubetide.vpa.updater.replacements import BreakerWatch
from kubetide.vpa.updater.settings import UpdaterSettings
from kubetide.vpa.updater.telemetry import UpdaterTelemetry

log = get_logger("updater")

RECOMPUTE_SECONDS = 60.0


class Updater(Controller):
    """Changes running pods whose size is too far from the recommendation, once per interval."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: UpdaterSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
        *,
        judged: Callable[[Iterable[dict[str, Any]], str], Awaitable[None]] | None = None,
    ) -> None:
        """With `judged`, nothing is changed: it gets what would be done to every pod, and why nothing would."""
        self._judged = judged
        self._clock = clock
        self._client = client
        self._settings = settings.checked()
        self._recorder = recorder
        self._rng = rng
        limits = settings.limits
        leadership = leadership_of(client, settings, clock=clock, rng=rng, slots=limits.slots, slot_rest=limits.rest)
        self._view = UpdaterView(client, clock=clock, settings=settings, rng=rng)
        self._evictor = Evictor(leadership.writer, rng=rng)
        self._telemetry = UpdaterTelemetry(telemetry, clock=clock)
        self._rules = _rules(settings)
        once = self.run_once if judged is None else self._report_once
        self._loop = PeriodicLoop("updater", once, clock=clock, interval=settings.interval)
        self._growth: MemoryGrowth | None = None
        if settings.resize_before_oom and not settings.upstream_behavior and judged is None:
            self._growth = MemoryGrowth(
                client,
                self._view,
                self._evictor,
                clock=clock,
                settings=settings,
                telemetry=self._telemetry,
                recorder=recorder,
                rng=rng,
            )
        loops = (self._loop,) if self._growth is None else (self._loop, self._growth)
        super().__init__(
            "updater",
            clock=clock,
            caches=(self._view,),
            loops=loops,
            leadership=leadership,
            sharded=(*self._view.targets.informers, self._view.pods),
        )
        self._left = NO_RANGES
        self._memory, self._breakers, self._disruptor = self._new_memory()
        self._limiters = self._new_limiters(clock.now())
        self._plans: dict[ObjectKey, tuple[VpaPlan, Judgement]] = {}
        self._announcements = Announcements(recorder)
        self._problem = ""
        self._execution: LoopExecution | None = None
        self._view.pods.add_handler(self._pod_changed)

    @property
    def problem(self) -> str:
        """Why the last loop did nothing; empty when it did its work."""
        return self._problem

    def notes(self) -> Sequence[str]:
        """Return what people should know: memory alarms that are not heard."""
        deaf = self._growth is not None and self.leading and self._growth.problem
        return (*super().notes(), *(("memory alarms are not heard",) if deaf else ()))

    async def started_leading(self) -> None:
        """Start without memory: a new leader knows nothing of what the last one did in the past minute."""
        settings = self._settings
        log.info("updating pods", compat=settings.compat, feature_gates=list(settings.feature_gates))
        await compare_deployed(
            self._client,
            self.name,
            program="vpa-updater",
            namespace=settings.leader_elect_resource_namespace,
            follows=str(settings.followed.version),
        )
        self._memory, self._breakers, self._disruptor = self._new_memory()
        self._limiters = self._new_limiters(self._clock.now())

    async def stops_owning(self, ranges: frozenset[int]) -> None:
        """Remember ranges that were given up: what is known of them is forgotten before the next loop.

        Nothing new is begun on their pods, and what is under way ends before they pass on (`LoopExecution`, the fence).
        What was announced of evictions is in the status of the VPAs, where the next owner finds it.
        """
        self._left |= ranges

    def _forget_left(self) -> None:
        left, self._left = self._left, NO_RANGES
        if left:
            self._memory.leave(lambda namespace: range_of(namespace) in left)

    def _settled(self, made: VpaPlan) -> bool:
        """Return whether what the last owner of a workload did to it a moment ago must show by now."""
        since = self.acting_since(made.key.namespace)
        return self._shards is None or (since is not None and self._clock.now() - since >= self._settings.limits.rest)

    async def run_once(self) -> None:
        """Look at everything once and change what should and may be changed."""
        began = self._clock.now()
        self._forget_left()
        self._telemetry.begin_run()
        with self._telemetry.step("total"):
            with self._telemetry.step("AdmissionInit"):
                heartbeat = await self._heartbeat()
            self._problem = heartbeat.problem if heartbeat is not None else ""
            with self._telemetry.step("ListVPAs"):
                vpas = [vpa for vpa in self._view.updated_vpas() if self.owns(vpa.metadata.namespace)]
            with self._telemetry.step("ListPods"):
                observations = await self._view.observe(vpas)
            with self._telemetry.step("FilterPods"):
                self._forget(observations)
                await self._breakers.begin_run(observations, heartbeat, now=self._clock.now())
                plans = await self._plan(observations)
            tracing.annotate(
                vpas=len(plans),
                pods=sum(len(made.judged) for made in plans),
                candidates=sum(len(made.candidates) for made in plans),
                problem=self._problem or None,
            )
            for made in plans:
                self._disruptor.report_skipped(made)
            if self._problem:
                log.warning("nothing is updated", reason=self._problem)
                return
            with self._telemetry.step("EvictPods"):
                await self._carry_out(
                    [made for made in plans if self._settled(made)], deadline=began + self._settings.interval
                )
        self._telemetry.disruptions.set(self._limiters.used(self._clock.now()))

    async def follow(self) -> None:
        """Keep the caches fresh until cancelled, without acting."""
        await self._view.run()

    async def look_once(self) -> None:
        """Judge every pod as a loop would, and change nothing."""
        heartbeat = await self._heartbeat()
        self._problem = heartbeat.problem if heartbeat is not None else ""
        observations = await self._view.observe(self._view.updated_vpas())
        for observation in observations:
            status = observation.vpa.status
            known = state_from(status.conditions if status is not None else None)
            self._memory.breakers[key_of(observation.vpa)] = known
        await self._plan(observations)

    async def _report_once(self) -> None:
        await self.look_once()
        if self._judged is not None:
            traces = (self.explain("pod", str(key)) for key in self._plans)
            await self._judged((found for found in traces if found is not None), self._problem)

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what would be done to a pod now, and why or why not."""
        if kind != "pod":
            return None
        found = self._plans.get(ObjectKey.parse(key))
        if found is None or not self.owns(found[0].key.namespace):
            return None
        made, judgement = found
        grown = self._growth.explain(ObjectKey.parse(key)) if self._growth is not None else []
        return (
            ({"memoryAlarms": grown} if grown else {})
            | trace(
                made,
                judgement,
                self._disruptor.step_of(judgement),
                breaker=self._memory.breakers.get(made.key, CLOSED),
                resize=self._disruptor.resize_of(judgement.pod),
                run_at=self._loop.last_run or self._clock.now(),
                problem=self._problem,
            )
            | {"compat": str(self._settings.followed.version)}
        )

    async def _heartbeat(self) -> Heartbeat | None:
        if not self._settings.use_admission_controller_status:
            return None
        found = await self._view.heartbeat()
        return Heartbeat(fresh=found.fresh) if self._settings.upstream_behavior else found

    def _forget(self, observations: list[Observation]) -> None:
        uids = {pod.metadata.uid for pod in self._view.pods.store.values()}
        self._memory.forget(
            uids=uids,
            creators=[creator for creator in self._memory.creators() if self._is_there(creator)],
            vpas=(key_of(observation.vpa) for observation in observations),
        )
        now = self._clock.now()
        for creator, done in list(self._memory.disruptions.items()):
            wanted = replicas_to_wait_for(creator, self._view.targets.stated_replicas(*creator) or 0)
            left = outstanding(self._view.workload(creator), done, configured=wanted, now=now)
            self._memory.settle(creator, left)
        self._disruptor.begin_run(uids)
        if self._growth is not None:
            self._growth.forget(self._view.pods.store, uids)

    def _is_there(self, creator: Creator) -> bool:
        if self._view.workload(creator):
            return True
        # A workload whose only pod was just evicted has none for a moment.
        return creator in self._memory.disruptions and bool(self._view.targets.stated_replicas(*creator))

    async def _plan(self, observations: list[Observation]) -> list[VpaPlan]:
        now = self._clock.now()
        plans = []
        self._plans = {}
        self._announcements.begin()
        for count, observation in enumerate(observations):
            if count % 50 == 49:
                await asyncio.sleep(0)
            if not observation.pods:
                continue
            try:
                made = plan(observation, self._memory, self._rules, now=now)
            except InvalidInput as error:
                # One object that cannot be read must not keep the others from being looked at.
                log.warning("VPA cannot be planned", vpa=str(key_of(observation.vpa)), error=str(error))
                continue
            plans.append(made)
            self._announcements.look(made)
            self._telemetry.count_plan(made)
            for judgement in made.judged:
                self._plans[key_of(judgement.pod)] = (made, judgement)
                self._disruptor.follow_resize(judgement.pod)
        return plans

    async def _carry_out(self, plans: list[VpaPlan], *, deadline: datetime) -> None:
        for made in plans:
            if made.rolls_out and self.owns(made.key.namespace):
                await self._disruptor.roll_out(made)
        self._execution = LoopExecution(
            plans,
            effects=self._disruptor,
            limiters=self._limiters,
            memory=self._memory,
            pods=self._view.pods.store,
            workload=self._view.workload,
            clock=self._clock,
            deadline=deadline,
            workers=self._settings.concurrency,
            owns=self.owns,
        )
        try:
            await self._execution.run()
        finally:
            self._execution = None
        await self._breakers.publish(now=self._clock.now())
        self._telemetry.paused.set(self._breakers.paused)
        for made in plans:
            self._telemetry.count_carried_out(made)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if self._execution is not None:
            self._execution.pod_changed(old, new)

    def _new_memory(self) -> tuple[Memory, BreakerWatch, Disruptor]:
        memory = Memory()
        watch = BreakerWatch(
            memory,
            workload=self._view.workload,
            evictor=self._evictor,
            recorder=self._recorder,
            tolerance=self._rules.rank.minimum_change,
            enabled=self._settings.pause_on_unchanged and not self._settings.upstream_behavior,
            owns=self.owns,
        )
        disruptor = Disruptor(
            memory,
            watch,
            evictor=self._evictor,
            telemetry=self._telemetry,
            recorder=self._recorder,
            clock=self._clock,
            workload=self._view.workload,
            cautious=self._rules.settle,
        )
        return memory, watch, disruptor

    def _new_limiters(self, now: datetime) -> DisruptionLimiters:
        share = None if self._shards is None else self._shards.share
        return DisruptionLimiters(self._settings.limits, now=now, share=share)


def _rules(settings: UpdaterSettings) -> PlanRules:
    return PlanRules(
        rank=RankRules(
            minimum_change=settings.pod_update_threshold,
            minimum_age=settings.lifetime_threshold,
            quick_oom=settings.evict_after_oom_threshold,
        ),
        min_replicas=settings.min_replicas,
        tolerance=settings.eviction_tolerance,
        skip_budget=settings.in_place_skip_disruption_budget,
        in_place_gate=settings.gate("InPlace"),
        per_vpa_gate=settings.gate("PerVPAConfig"),
        boost_gate=settings.gate("CPUStartupBoost"),
        compat=settings.followed,
        windows=settings.update_windows,
        settle=settings.wait_for_replacements and not settings.upstream_behavior,
    )


async def recompute(client: Client, clock: Clock, settings: UpdaterSettings, key: ObjectKey) -> dict[str, Any]:
    """Return what an updater that has just started would do to a pod."""
    alone = msgspec.structs.replace(settings, leader_elect=False, shards=ShardMode.OFF)
    updater = Updater(client, clock, alone, Telemetry(), _Silent(), random.Random(0))
    async with asyncio.TaskGroup() as group:
        informers = group.create_task(updater.follow(), name="informers")
        try:
            async with asyncio.timeout(RECOMPUTE_SECONDS):
                await updater.wait_synced()
                await updater.look_once()
        except TimeoutError as error:
            raise Unavailable("the cluster could not be read in time") from error
        finally:
            informers.cancel()
    found = updater.explain("pod", str(key))
    if found is None:
        raise KubetideError(f"pod {key} is not controlled by a VPA that changes running pods")
    return found


class _Silent:
    """A recorder for looking on."""

    def publish(self, event: Event) -> None:
        """Keep it to oneself."""
