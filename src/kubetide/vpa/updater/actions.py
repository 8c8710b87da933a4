"""What a loop does to pods, and what it remembers of it: evictions, resizes, and the words for both."""

from collections.abc import Callable
from datetime import datetime
from itertools import chain

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.vpa import IN_PLACE, IN_PLACE_OR_RECREATE
from kubetide.clock import Clock
from kubetide.kube.control.recorder import Recorder
from kubetide.log import get_logger
from kubetide.vpa.admission.core.mutate import resource_patch
from kubetide.vpa.core.boost import ANNOTATION, boosted_containers
from kubetide.vpa.core.compat import NODE_CAPACITY_INFEASIBLE, RESIZE_ERROR_DEFERRED
from kubetide.vpa.updater.core import events
from kubetide.vpa.updater.core.breaker import CLOSED
from kubetide.vpa.updater.core.budget import Creator, creator_of
from kubetide.vpa.updater.core.disturbing import by_rollout, why_not_now
from kubetide.vpa.updater.core.fitting import new_requests
from kubetide.vpa.updater.core.inplace import is_infeasible, may_evict, pod_resize_state
from kubetide.vpa.updater.core.memory import Memory, PastEviction, disruption_of
from kubetide.vpa.updater.core.plan import Judgement, Method, VpaPlan
from kubetide.vpa.updater.core.priority import actual_requests
from kubetide.vpa.updater.core.resizing import Resize, fell_back, resize_of
from kubetide.vpa.updater.core.step import Step
from kubetide.vpa.updater.evictor import Attempt, Evictor
from kubetide.vpa.updater.executor import UNANNOUNCED, AttemptResult
from kubetide.vpa.updater.replacements import BreakerWatch
from kubetide.vpa.updater.telemetry import UpdaterTelemetry

log = get_logger("updater")


class Disruptor:
    """Carries out decisions about pods and keeps what people may ask about them."""

    def __init__(
        self,
        memory: Memory,
        breakers: BreakerWatch,
        *,
        evictor: Evictor,
        telemetry: UpdaterTelemetry,
        recorder: Recorder,
        clock: Clock,
        workload: Callable[[Creator], list[Pod]],
        cautious: bool,
    ) -> None:
        self._memory = memory
        self._breakers = breakers
        self._evictor = evictor
        self._telemetry = telemetry
        self._recorder = recorder
        self._clock = clock
        self._workload = workload
        self._cautious = cautious
        self._steps: dict[ObjectKey, Step] = {}
        self._last_steps: dict[ObjectKey, Step] = {}
        self._resizes: dict[str, Resize] = {}
        self._rollouts: dict[ObjectKey, datetime] = {}

    def begin_run(self, uids: set[str]) -> None:
        """Forget the decisions of the loop before the last one, and pods that are gone."""
        self._last_steps, self._steps = self._steps, {}
        self._resizes = {uid: resize for uid, resize in self._resizes.items() if uid in uids}

    def step_of(self, judgement: Judgement) -> Step:
        """Return what was decided last about a pod; in the middle of a loop maybe in the one before."""
        key, judged = key_of(judgement.pod), Step(judgement.method, judgement.reason)
        if key in self._steps or judgement.method is Method.NONE:
            return self._steps.get(key, judged)
        return self._last_steps.get(key, judged)

    def resize_of(self, pod: Pod) -> Resize | None:
        """Return where the resize of a pod stood when it was last looked at."""
        return self._resizes.get(pod.metadata.uid)

    async def evict(self, plan: VpaPlan, candidate: Judgement, pod: Pod, reason: str) -> AttemptResult:
        """Evict a pod, and remember it where it happened or may have happened."""
        fields = {"pod": str(key_of(pod)), "vpa": str(plan.key), "reason": reason}
        if not await self.announce(plan, pod):
            self._steps[key_of(pod)] = Step(Method.WAIT, UNANNOUNCED)
            return AttemptResult.NOTHING
        eviction = self._eviction(plan, candidate, pod)
        # Before the request: nobody may think meanwhile that no replacement is awaited.
        self._memory.begin(eviction, judged=self._breakers.enabled)
        outcome, error = await self._evictor.evict(pod)
        size = len(plan.judged)
        if outcome is Attempt.DONE or (outcome is Attempt.UNKNOWN and self._cautious):
            plan.budget.record_eviction(pod)
        if outcome not in (Attempt.DONE, Attempt.UNKNOWN):
            self._memory.undo(eviction)
            self._breakers.refused(plan.key)
        if outcome is not Attempt.DONE:
            self._telemetry.count_failed_eviction(plan.key, pods=size, mode=plan.mode, reason="EvictionError")
            self._steps[key_of(pod)] = Step(Method.WAIT, f"{outcome.value}: {error}")
            log.warning("could not evict", **fields, outcome=outcome.value, error=error)
            return AttemptResult.COUNTS if outcome is Attempt.UNKNOWN else AttemptResult.NOTHING
        self._telemetry.count_eviction(plan.key, pods=size, mode=plan.mode)
        self._steps[key_of(pod)] = Step(Method.EVICT, reason)
        if plan.mode == IN_PLACE_OR_RECREATE:
            self._resizes[pod.metadata.uid] = fell_back(reason)
        for event in events.evicted(pod, plan.vpa):
            self._recorder.publish(event)
        log.info("evicted", **fields)
        return AttemptResult.COUNTS

    async def roll_out(self, plan: VpaPlan) -> None:
        """Begin a rollout of the target of a VPA, unless the last one is too fresh."""
        now, target = self._clock.now(), plan.vpa.spec.target_ref
        pods = [judgement.pod for judgement in plan.judged]
        waits = why_not_now(pods, self._rollouts.get(plan.key), now=now)
        assert target is not None
        if not waits:
            self._rollouts[plan.key] = now
            problem = await self._evictor.roll_out(plan.key.namespace, target.name, at=now)
            fields = {"vpa": str(plan.key), "deployment": target.name}
            if problem:
                waits = f"its rollout failed: {problem}"
                log.warning("could not roll out", **fields, error=problem)
            else:
                self._recorder.publish(events.rolled_out(plan.vpa, target.name))
                log.info("rolled out", **fields)
        for judgement in plan.judged:
            if judgement.method is Method.ROLL_OUT:
                step = Step(Method.WAIT, waits) if waits else Step(Method.ROLL_OUT, judgement.reason)
                self._steps[key_of(judgement.pod)] = step

    async def resize(self, plan: VpaPlan, candidate: Judgement, pod: Pod, reason: str) -> AttemptResult:
        """Resize a pod in place; a rejection for good may ask for an eviction instead."""
        assert candidate.fitted is not None
        uid = pod.metadata.uid
        compat = plan.rules.compat
        infeasible = is_infeasible(pod_resize_state(pod), error_too=not compat.has(RESIZE_ERROR_DEFERRED))
        if plan.mode == IN_PLACE and infeasible and candidate.targets is not None:
            self._memory.infeasible[uid] = candidate.targets
            self._telemetry.count_failed_resize(plan.key, pods=len(plan.judged), reason="InPlaceUpdateInfeasible")
        patch = resource_patch(pod, candidate.fitted.containers)
        gone = [f"{ANNOTATION}{name}" for name in boosted_containers(pod)] if candidate.unboost else []
        outcome, error = await self._evictor.resize(pod, list(chain.from_iterable(patch)), without=gone)
        size = len(plan.judged)
        fields = {"pod": str(key_of(pod)), "vpa": str(plan.key), "reason": reason}
        if outcome in (Attempt.DONE, Attempt.UNKNOWN):
            plan.budget.record_resize(pod)
            known = {each.metadata.uid for each in self._workload(creator_of(pod))}
            record = disruption_of(name=pod.metadata.name, uid=uid, at=self._clock.now(), evicted=False, known=known)
            self._memory.record(creator_of(pod), record)
        if outcome is Attempt.DONE:
            self._telemetry.count_resize(plan.key, pods=size)
            self._steps[key_of(pod)] = Step(Method.RESIZE, reason)
            self._recorder.publish(events.resized(pod))
            log.info("resized in place", **fields)
            return AttemptResult.COUNTS
        refused = outcome in (Attempt.FAILED, Attempt.INFEASIBLE)
        never = outcome is Attempt.INFEASIBLE and plan.mode == IN_PLACE and compat.has(NODE_CAPACITY_INFEASIBLE)
        reason_of_failure = "InPlaceUpdateInfeasible" if never else "InPlaceUpdateError"
        if candidate.unboost:
            never, reason_of_failure = False, "UnboostError"
        self._telemetry.count_failed_resize(plan.key, pods=size, reason=reason_of_failure)
        self._steps[key_of(pod)] = Step(Method.WAIT, f"{outcome.value}: {error}")
        log.warning("could not resize in place", **fields, outcome=outcome.value, error=error)
        if never and candidate.targets is not None:
            self._memory.infeasible[uid] = candidate.targets
        in_place_alone = candidate.unboost or candidate.in_place_only or bool(plan.closed) or by_rollout(plan.vpa)[0]
        if not refused or plan.mode != IN_PLACE_OR_RECREATE or in_place_alone:
            return AttemptResult.COUNTS if outcome is Attempt.UNKNOWN else AttemptResult.NOTHING
        waited = self._memory.clock.waited(uid, pod_resize_state(pod), now=self._clock.now())
        paused = self._memory.breakers.get(plan.key, CLOSED).paused
        if paused or not may_evict(pod, plan.budget.group_of(pod), waited=waited):
            return AttemptResult.NOTHING
        return AttemptResult.EVICT_INSTEAD

    async def announce(self, plan: VpaPlan, pod: Pod) -> bool:
        """Write down that a pod is about to be evicted; False when it must not be, because that failed."""
        return await self._breakers.announce(plan.key, pod, now=self._clock.now())

    def look(self, plan: VpaPlan) -> None:
        """Judge the replacements that have come by now, before anything else is done to the workload."""
        if plan.key in self._memory.breakers:
            self._breakers.look(plan.key, now=self._clock.now())

    def report_skipped(self, plan: VpaPlan) -> None:
        """Count the pods whose resize is known to be infeasible, and say so once per recommendation."""
        for judgement in plan.judged:
            uid = judgement.pod.metadata.uid
            if not judgement.skipped:
                continue
            self._telemetry.count_skipped(plan.key, pods=len(plan.judged))
            remembered = self._memory.infeasible.get(uid)
            if remembered is not None and self._memory.skips.get(uid) != remembered:
                self._memory.skips[uid] = remembered
                self._recorder.publish(events.skipped(judgement.pod))

    def too_late(self, plan: VpaPlan, method: Method) -> None:
        """Count that a limiter would have let a disruption pass only after the end of the loop."""
        size = len(plan.judged)
        if method is Method.EVICT:
            reason = "EvictionRateLimiterWaitFailed"
            self._telemetry.count_failed_eviction(plan.key, pods=size, mode=plan.mode, reason=reason)
        else:
            self._telemetry.count_failed_resize(plan.key, pods=size, reason="InPlaceUpdateRateLimiterWaitFailed")

    def note(self, plan: VpaPlan, candidate: Judgement, step: Step) -> None:
        """Keep what was decided about a pod."""
        self._steps[key_of(candidate.pod)] = step

    def _eviction(self, plan: VpaPlan, candidate: Judgement, pod: Pod) -> PastEviction:
        meta, creator = pod.metadata, creator_of(pod)
        known = {each.metadata.uid for each in self._workload(creator)}
        return PastEviction(
            vpa=plan.key,
            creator=creator,
            disruption=disruption_of(name=meta.name, uid=meta.uid, at=self._clock.now(), evicted=True, known=known),
            before={c.name: actual_requests(pod, c) for c in pod.spec.containers or ()},
            expected=new_requests(candidate.fitted) if candidate.fitted is not None else {},
        )

    def follow_resize(self, pod: Pod) -> None:
        """Log a resize as it goes from one phase to the next."""
        standing = resize_of(pod)
        if standing is None or self._resizes.get(pod.metadata.uid) == standing:
            return
        self._resizes[pod.metadata.uid] = standing
        log.info("resize", pod=str(key_of(pod)), phase=standing.phase.value, reason=standing.reason)
