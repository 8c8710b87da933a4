"""Carries out a loop: candidates one after the other, each decided again right before it is changed.

Candidates wait in a queue per workload, most urgent workload first. A few workers take the next workload that may be
disturbed; a workload that has to wait for a replacement comes back when one of its pods changes. Before anything is
done a worker waits for the budget of the cluster; when that would be after the end of the loop, the loop is over.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from kubetide import tracing
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import key_of
from kubetide.clock import Clock
from kubetide.kube.cache.store import Store
from kubetide.kube.control.core.slots import WHOLE, Share
from kubetide.vpa.updater.core.budget import Creator, creator_of
from kubetide.vpa.updater.core.disruption import DisruptionBudget, Limits, TokenBucket
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.plan import Judgement, Method, VpaPlan
from kubetide.vpa.updater.core.step import Step, next_step

UNANNOUNCED = "its eviction could not be written into the status of the VPA"
OUT_OF_TIME = "this loop ended before it"
OUT_OF_BUDGET = "the disruption budget of the cluster is used up for this loop"
OUT_OF_SHARE = "this replica has no share of the disruption budget of the cluster yet"
NEVER = timedelta(days=1)


class AttemptResult(Enum):
    """How an attempt ended."""

    COUNTS = "it happened, or may have happened"
    NOTHING = "nothing happened"
    EVICT_INSTEAD = "the resize was refused for good"


class Effects(Protocol):
    """What a loop does to the cluster."""

    async def evict(self, plan: VpaPlan, candidate: Judgement, pod: Pod, reason: str) -> AttemptResult:
        """Evict a pod and remember it."""
        ...

    async def resize(self, plan: VpaPlan, candidate: Judgement, pod: Pod, reason: str) -> AttemptResult:
        """Resize a pod and remember it."""
        ...

    async def announce(self, plan: VpaPlan, pod: Pod) -> bool:
        """Write down that a pod is about to be evicted; False when it must not be, because that failed."""
        ...

    def look(self, plan: VpaPlan) -> None:
        """Judge the replacements that have come by now."""
        ...

    def too_late(self, plan: VpaPlan, method: Method) -> None:
        """Count that a limiter would have let a disruption pass only after the end of the loop."""
        ...

    def note(self, plan: VpaPlan, candidate: Judgement, step: Step) -> None:
        """Keep what was decided, for people."""
        ...


class DisruptionLimiters:
    """Everything that may hold a disruption back for a while; where replicas share the limits, this one's part."""

    def __init__(self, limits: Limits, *, now: datetime, share: Callable[[], Share] | None = None) -> None:
        rate, burst = limits.rate, limits.rate_burst
        self._limits = self._mine = limits
        self._share_now = share
        self._share = WHOLE if share is None else Share(0, limits.slots)
        self._budget = DisruptionBudget(
            per_minute=limits.per_minute, burst=limits.burst, started=now, shared=share is not None
        )
        self._buckets = {
            method: TokenBucket(rate=rate, burst=burst, now=now) for method in (Method.EVICT, Method.RESIZE)
        }

    def ready_at(self, method: Method, now: datetime) -> datetime:
        """Return when one more may go."""
        share = self._follow(now)
        if not share.slots:
            return now + (NEVER if share.opens_in is None else timedelta(seconds=share.opens_in))
        return max(self._budget.next_at(now), self._buckets[method].ready_at(now))

    def at_once(self, now: datetime) -> int:
        """Return how many may be under way."""
        return self._mine.at_once if self._follow(now).slots else 0

    def used(self, now: datetime) -> int:
        """Return how many disruptions the last minute saw."""
        return self._budget.used(now)

    def give_back(self, method: Method, at: datetime) -> None:
        """Uncount what was counted at `at` and did not happen."""
        self._budget.give_back(at)
        self._buckets[method].give_back()

    def take(self, method: Method, now: datetime) -> None:
        """Count one."""
        self._budget.record(now)
        self._buckets[method].take(now)

    def _follow(self, now: datetime) -> Share:
        """Bring the limits up to date with the share of this replica, and return it."""
        if self._share_now is None:
            return self._share
        before, self._share = self._share, self._share_now()
        if self._share.slots and self._share.slots != before.slots:
            mine, fresh = self._limits.part(self._share.slots, self._share.of), not before.slots
            self._mine = mine
            self._budget.resize(per_minute=mine.per_minute, burst=mine.burst, now=now, fresh=fresh)
            for bucket in self._buckets.values():
                bucket.resize(rate=mine.rate, burst=mine.rate_burst, now=now, fresh=fresh)
        return self._share


class LoopExecution:
    """One run."""

    def __init__(
        self,
        plans: Iterable[VpaPlan],
        *,
        effects: Effects,
        limiters: DisruptionLimiters,
        memory: Memory,
        pods: Store[Pod],
        workload: Callable[[Creator], list[Pod]],
        clock: Clock,
        deadline: datetime,
        workers: int,
        owns: Callable[[str], bool] = lambda namespace: True,
    ) -> None:
        """`owns` says whether what is in a namespace may still be disturbed from here."""
        self._owns = owns
        self._effects = effects
        self._limiters = limiters
        self._memory = memory
        self._pods = pods
        self._workload = workload
        self._clock = clock
        self._deadline = deadline
        self._workers = max(workers, 1)
        self._queues: dict[Creator, deque[tuple[VpaPlan, Judgement]]] = {}
        self._ready: list[tuple[tuple[bool, float], Creator]] = []
        self._waiting: set[Creator] = set()
        self._again: set[Creator] = set()
        self._busy = 0
        self._under_way = 0
        self._returned = asyncio.Event()
        self._over = ""
        self._wake = asyncio.Event()
        for plan in plans:
            for candidate in plan.candidates:
                self._queues.setdefault(creator_of(candidate.pod), deque()).append((plan, candidate))
        for creator in self._queues:
            self._push(creator)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Let a waiting workload be tried again."""
        pod = new if new is not None else old
        if pod is None:
            return
        creator = creator_of(pod)
        if creator in self._waiting:
            self._waiting.discard(creator)
            self._push(creator)
        elif creator in self._queues:
            # Its worker is at it: what it saw may be outdated by the time it puts the workload aside.
            self._again.add(creator)

    async def run(self) -> None:
        """Work until nothing is left, nothing may go any more, or time is over."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._workers, max(len(self._queues), 1))):
                group.create_task(self._work())
        for queue in self._queues.values():
            for plan, candidate in queue:
                self._effects.note(plan, candidate, Step(Method.WAIT, self._over or OUT_OF_TIME))

    async def _work(self) -> None:
        while True:
            creator = await self._next()
            if creator is None:
                return
            self._busy += 1
            self._again.discard(creator)
            try:
                await self._handle(creator)
            finally:
                self._busy -= 1
                self._wake.set()

    async def _next(self) -> Creator | None:
        while not self._over:
            if self._ready:
                return heapq.heappop(self._ready)[1]
            left = (self._deadline - self._clock.now()).total_seconds()
            if left <= 0 or (not self._waiting and not self._busy):
                return None
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return None

    async def _handle(self, creator: Creator) -> None:
        """Disturb one workload as far as it may be, then leave it to the next event or run."""
        queue = self._queues[creator]
        while queue and not self._over:
            plan, candidate = queue[0]
            pod = self._current(candidate)
            if pod is None:
                queue.popleft()
                continue
            step = self._decide(plan, candidate, pod, creator)
            if step.method is Method.NONE:
                self._effects.note(plan, candidate, step)
                queue.popleft()
            elif step.method is Method.WAIT:
                self._effects.note(plan, candidate, step)
                self._put_aside(creator)
                return
            elif not await self._wait_for_turn(step.method):
                self._effects.too_late(plan, step.method)
                return
            elif step.method is Method.EVICT and not await self._effects.announce(plan, pod):
                self._effects.note(plan, candidate, Step(Method.WAIT, UNANNOUNCED))
                self._put_aside(creator)
                return
            else:
                # Waiting took time: only what still holds is done, and nothing else runs between here and the request.
                await self._act(plan, candidate, creator)

    async def _act(self, plan: VpaPlan, candidate: Judgement, creator: Creator) -> None:
        pod = self._current(candidate)
        now = self._clock.now()
        if pod is None:
            return
        step = self._decide(plan, candidate, pod, creator)
        if step.method not in (Method.EVICT, Method.RESIZE) or self._limiters.ready_at(step.method, now) > now:
            return
        if self._under_way >= self._limiters.at_once(now):
            return
        self._limiters.take(step.method, now)
        self._queues[creator].popleft()
        self._under_way += 1
        try:
            about = {"vpa": plan.key, "pod": key_of(pod), "action": step.method.name.lower(), "reason": step.reason}
            with tracing.span("updater/pod", **about):
                result = await self._disturb(plan, candidate, pod, step)
                tracing.annotate(result=result.value)
        finally:
            self._under_way -= 1
            self._returned.set()
        if result is AttemptResult.NOTHING:
            # Pods that nobody may touch must not use up the budget of others.
            self._limiters.give_back(step.method, now)

    async def _disturb(self, plan: VpaPlan, candidate: Judgement, pod: Pod, step: Step) -> AttemptResult:
        if step.method is Method.EVICT:
            return await self._effects.evict(plan, candidate, pod, step.reason)
        result = await self._effects.resize(plan, candidate, pod, step.reason)
        if result is not AttemptResult.EVICT_INSTEAD:
            return result
        # The resize that was counted did not happen; the eviction in its place uses its budget.
        return await self._effects.evict(plan, candidate, pod, "the resize in place was refused: evicted instead")

    async def _wait_for_turn(self, method: Method) -> bool:
        """Wait until the limiters let one more pass; False when that is after the end of the loop."""
        while not self._over:
            now = self._clock.now()
            at, at_once = self._limiters.ready_at(method, now), self._limiters.at_once(now)
            if now >= self._deadline or (at > self._deadline and not self._under_way):
                short = OUT_OF_BUDGET if at_once else OUT_OF_SHARE
                self._over = OUT_OF_TIME if now >= self._deadline else short
                self._wake.set()
                self._returned.set()
                return False
            if at <= now and self._under_way < at_once:
                return True
            # What is under way may come to nothing and give its budget back before then.
            self._returned.clear()
            try:
                # Rounded up: a timer that fires a hair early would only be asked again.
                delay = min(at if at > now else self._deadline, self._deadline) - now + timedelta(milliseconds=1)
                async with asyncio.timeout(delay.total_seconds()):
                    await self._returned.wait()
            except TimeoutError:
                continue
        return False

    def _decide(self, plan: VpaPlan, candidate: Judgement, pod: Pod, creator: Creator) -> Step:
        self._effects.look(plan)
        return next_step(plan, candidate, pod, self._workload(creator), self._memory, now=self._clock.now())

    def _current(self, candidate: Judgement) -> Pod | None:
        """Return the pod as it is now; None when it is gone, going, another of the same name, or another replica's."""
        seen = candidate.pod.metadata
        pod = self._pods.get(key_of(candidate.pod)) if self._owns(seen.namespace) else None
        if pod is None or pod.metadata.uid != seen.uid or pod.metadata.deletion_timestamp is not None:
            return None
        return pod

    def _put_aside(self, creator: Creator) -> None:
        if creator in self._again:
            self._again.discard(creator)
            self._push(creator)
        else:
            self._waiting.add(creator)

    def _push(self, creator: Creator) -> None:
        queue = self._queues.get(creator)
        if queue:
            # Equally urgent workloads go by name, whenever they come: the order must be the same in every process.
            heapq.heappush(self._ready, (_urgency(queue[0][1]), creator))
            self._wake.set()


def _urgency(candidate: Judgement) -> tuple[bool, float]:
    """Return the sort key of a workload: those that need more first, then the larger difference."""
    ranked = candidate.ranked
    return (not ranked.priority.scale_up, -ranked.priority.diff) if ranked is not None else (True, 0.0)
