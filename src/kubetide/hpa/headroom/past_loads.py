"""The past load of targets from Prometheus, for autoscalers that begin to learn their headroom.

One autoscaler at a time, a slice of its past at a time: read, learned from, forgotten. Meanwhile the autoscaler learns
live, and another learner is taught the past; once that has caught up with the present it takes over, and what it
learned is saved. A slice that is not answered is asked again with growing pauses, and reading goes on there. After an
hour without an answer, or when Prometheus refuses a question, the autoscaler goes on live and `explain` shows why.

Learning takes a fifth of a millisecond a step: there is a pause after every hundred steps, three times as long as they
took, so that reconciles do not wait for it.
"""

import asyncio
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakValueDictionary

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.hpa.core.headroom.learner import LIVE, HeadroomLearner
from kubetide.hpa.core.headroom.past_load import PastMetric, past_steps
from kubetide.hpa.headroom.kept import KeptHeadroom, PastReading
from kubetide.kube.control.controller import KeyedLoop
from kubetide.kube.control.reconcile import Result
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.stats.prometheus_ranges import MAX_POINTS, PrometheusAnswer, read_any, slices

log = get_logger("hpa.past")

PATIENCE: Final = timedelta(hours=1)
"""How long a Prometheus that does not answer is asked again."""
MOST_STEPS: Final = 8 * 24 * 240
"""Steps of the past at most, whatever the period: eight days of 15 s, ten seconds of CPU."""
RETRY: Final = Backoff(base=5.0, cap=300.0, jitter=0.5)
_NEAR_STEPS: Final = 10
"""So many steps behind the present count as caught up: they are bridged."""
_AT_ONCE: Final = 100
_PAUSE: Final = 3.0


class Prometheus(Protocol):
    """Answers queries; an error answer raises PrometheusAnswer, silence raises Unavailable."""

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send a form and return the body of the answer."""
        ...


class PastLoads:
    """Teaches learners the past of their targets."""

    def __init__(self, prometheus: Prometheus, clock: Clock, rng: random.Random, length: timedelta) -> None:
        self._prometheus, self._clock, self._rng, self._length = prometheus, clock, rng, length
        self._kept: WeakValueDictionary[ObjectKey, KeptHeadroom] = WeakValueDictionary()
        self.loop = KeyedLoop("past load", self.reconcile, clock=clock)

    def begin(
        self,
        key: ObjectKey,
        kept: KeptHeadroom,
        learner: HeadroomLearner,
        metrics: tuple[PastMetric, ...],
        tolerance: float,
    ) -> None:
        """Teach a learner the past and let it take over then; what was begun before for the same is left."""
        step = learner.terms.step_seconds
        steps = min(MOST_STEPS, int(self._length.total_seconds()) // step)
        kept.past = PastReading(
            learner=learner,
            metrics=metrics,
            tolerance=tolerance,
            at=(int(self._clock.now().timestamp()) // step - steps) * step,
            give_up_at=self._patience(),
        )
        self._kept[key] = kept
        self.loop.add(key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Read on; end with a learner that takes over, with a reason, or with another try later."""
        kept = self._kept.get(key)
        reading = kept.past if kept is not None else None
        if kept is None or reading is None:
            return Result()
        try:
            await self._read_on(kept, reading)
        except Unavailable as error:
            if self._clock.monotonic() >= reading.give_up_at:
                return self._stay_live(key, kept, reading, str(error))
            delay = timedelta(seconds=RETRY.delay(reading.failures, self._rng))
            reading.failures += 1
            _say(kept, f"{LIVE} while the past is asked for: {error}")
            log.warning("past load is not answered", autoscaler=str(key), error=str(error), retry=str(delay))
            return Result(requeue_after=delay)
        except KubetideError as error:
            return self._stay_live(key, kept, reading, str(error))
        if not reading.steps:
            return self._stay_live(key, kept, reading, "Prometheus has no past load of this target")
        if kept.past is reading:
            covered = timedelta(seconds=reading.steps * reading.learner.terms.step_seconds)
            reading.learner.origin = f"from {covered} of past load in Prometheus, then live"
            kept.learner, kept.past, kept.save_at = reading.learner, None, 0.0
            log.info("past load learned", autoscaler=str(key), steps=reading.steps)
        return Result()

    async def _read_on(self, kept: KeptHeadroom, reading: PastReading) -> None:
        """Read slice after slice until the present, or until nobody wants it any more."""
        step = reading.learner.terms.step_seconds
        while kept.past is reading:
            now = int(self._clock.now().timestamp()) // step * step
            part = next(slices(reading.at, now, step, MAX_POINTS), None)
            if part is None:
                return
            answers = [await self._ask(metric, part.start, part.end, step) for metric in reading.metrics]
            reading.failures, reading.give_up_at = 0, self._patience()
            await self._teach(reading, answers, part.start // step, part.end // step)
            reading.at = part.end + step
            if part.end + _NEAR_STEPS * step >= int(self._clock.now().timestamp()):
                return

    async def _teach(self, reading: PastReading, answers: list[dict[int, float]], first: int, last: int) -> None:
        begun = self._clock.monotonic()
        for past in past_steps(reading.metrics, answers, first=first, last=last):
            reading.learner.recall(past, reading.tolerance)
            reading.steps += 1
            if reading.steps % _AT_ONCE == 0:
                await asyncio.sleep(_PAUSE * (self._clock.monotonic() - begun))
                begun = self._clock.monotonic()

    async def _ask(self, metric: PastMetric, start: int, end: int, step: int) -> dict[int, float]:
        """Return the answer by step."""
        form = {"query": metric.query, "start": str(start), "end": str(end), "step": str(step)}
        series = read_any(await self._prometheus.post("/api/v1/query_range", form))
        if len(series) > 1:
            raise PrometheusAnswer(f"the query for past load answers with {len(series)} series, not with one")
        return {
            at // (step * 1_000_000): value
            for one in series
            for at, value in zip(one.times.tolist(), one.values.tolist(), strict=True)
        }

    def _stay_live(self, key: ObjectKey, kept: KeptHeadroom, reading: PastReading, reason: str) -> Result:
        if kept.past is reading:
            kept.past = None
            _say(kept, f"{LIVE}: {reason}")
            log.warning("headroom learns without the past", autoscaler=str(key), reason=reason)
        return Result()

    def _patience(self) -> float:
        return self._clock.monotonic() + PATIENCE.total_seconds()


def _say(kept: KeptHeadroom, origin: str) -> None:
    if kept.learner is not None:
        kept.learner.origin = origin
