"""What was learned about headroom, kept in memory and, once an hour, in an annotation of the autoscaler.

The annotation `kubetide.io/hpa-headroom-state` holds a few kilobytes: how good each forecaster was, how wrong forecasts
were, what the candidates and the plain rule cost. A new leader goes on from it. How each minute of a day and a week
moved is not in it and is learned again. State that cannot be used is left alone and replaced an hour later.

Where there is no state, and Prometheus is known, learning begins with the past (`hpa.headroom.past_loads`).
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.scheme import HPAS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.hpa.core.annotations import HEADROOM_STATE, HeadroomMode, Overrides
from kubetide.hpa.core.decide import metrics_of
from kubetide.hpa.core.headroom.learner import LIVE, HeadroomLearner, LearnedCount, learner_for, start_time_of
from kubetide.hpa.core.headroom.past_load import past_metrics
from kubetide.hpa.core.observation import Observation, ScaleDecision
from kubetide.hpa.core.takeover import FIELD_MANAGER
from kubetide.hpa.headroom.kept import KeptHeadroom
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.log import get_logger

# Answers of Prometheus are read with NumPy, which takes a tenth of a second to load: not without Prometheus.
if TYPE_CHECKING:
    from kubetide.hpa.headroom.past_loads import PastLoads

log = get_logger("hpa")

SAVE_EVERY: Final = timedelta(hours=1)
KILLED_BY_FLAG: Final = "--learned=false"
NO_START_TIME: Final = "no pod of the target is Ready, so nobody knows how long its pods take to start"
NO_DEMAND: Final = "the demand is not known now: a metric failed, or none can be acted on"


class HeadroomStore:
    """Learns for autoscalers that ask for it, and saves what was learned."""

    def __init__(self, client: Client, clock: Clock, settings: HpaSettings, past: "PastLoads | None" = None) -> None:
        self._client, self._clock, self._past = client, clock, past
        self._learned, self._queries = settings.learned, settings.headroom_queries
        self._options = settings.options

    def learn(
        self,
        kept: KeptHeadroom,
        overrides: Overrides,
        period: timedelta,
        seen: Observation,
        plain: ScaleDecision,
    ) -> LearnedCount | None:
        """Take in what the plain rule saw and chose; return the learned count, where the user asked for one."""
        mode = overrides.headroom if self._learned else None
        kept.silent = ""
        if mode is None:
            kept.learner = kept.past = None
            kept.silent = overrides.killed or (KILLED_BY_FLAG if overrides.headroom is not None else "")
            return None
        if seen.scale is None:
            return None
        asked = seen.scale.replicas
        if kept.learner is None or not kept.learner.fits(mode, seen.hpa.spec, period):
            start = start_time_of(seen.pods)
            if start is None:
                kept.silent = NO_START_TIME
                return None
            saved, past = self._read(seen.hpa), kept.past is not None
            if kept.learner is not None:
                saved = kept.learner.saved()
            kept.learner = self._begin(mode, period, seen.hpa, start, asked, saved)
            kept.save_at = self._clock.monotonic() + SAVE_EVERY.total_seconds()
            if self._past is not None and (past or not saved):
                fresh = self._begin(mode, period, seen.hpa, start, asked, {})
                self._begin_with_past(self._past, kept, kept.learner, fresh, overrides, seen, plain)
        learned = kept.learner.learn(plain.choice, plain.results, seen.pods, asked=asked, now=plain.at)
        kept.silent = "" if learned is not None else NO_DEMAND
        return learned

    def _begin_with_past(
        self,
        loads: "PastLoads",
        kept: KeptHeadroom,
        live: HeadroomLearner,
        fresh: HeadroomLearner,
        overrides: Overrides,
        seen: Observation,
        plain: ScaleDecision,
    ) -> None:
        """Let the past be read, where it can be asked for."""
        hpa, metrics = seen.hpa, metrics_of(seen.hpa.spec)
        query = overrides.headroom_query if self._queries else None
        try:
            asked = past_metrics(hpa.metadata.namespace, hpa.spec, metrics, seen.pods, plain.compat, query or "")
        except InvalidInput as error:
            live.origin = f"{LIVE}: {error}"
            return
        live.origin = f"{LIVE} while the past is read from Prometheus"
        loads.begin(key_of(hpa), kept, fresh, asked, self._options.tolerance)

    async def save(self, kept: KeptHeadroom, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler | None:
        """Save once an hour; return the autoscaler as the server then has it. A failure is logged, never raised."""
        now = self._clock.monotonic()
        if kept.learner is None or now < kept.save_at:
            return None
        kept.save_at = now + SAVE_EVERY.total_seconds()
        text = msgspec.json.encode(kept.learner.saved()).decode()
        patch = MergePatch({"metadata": {"annotations": {HEADROOM_STATE: text}}})
        meta = hpa.metadata
        try:
            return await self._client.patch(
                HPAS, meta.name, patch, namespace=meta.namespace, field_manager=FIELD_MANAGER
            )
        except KubetideError as error:
            log.warning("cannot save learned headroom", autoscaler=str(key_of(hpa)), error=str(error))
            return None

    @staticmethod
    def _read(hpa: HorizontalPodAutoscaler) -> dict[str, Any]:
        text = (hpa.metadata.annotations or {}).get(HEADROOM_STATE)
        try:
            return msgspec.json.decode(text, type=dict[str, Any]) if text is not None else {}
        except (msgspec.DecodeError, RecursionError) as error:
            log.info("learned headroom begins anew", autoscaler=str(key_of(hpa)), reason=str(error))
            return {}

    def _begin(
        self,
        mode: HeadroomMode,
        period: timedelta,
        hpa: HorizontalPodAutoscaler,
        start: timedelta,
        replicas: int,
        saved: dict[str, Any],
    ) -> HeadroomLearner:
        window = self._options.downscale_window
        learner = learner_for(mode, hpa.spec, period, window, start=start, replicas=replicas, saved=saved)
        if saved:
            try:
                learner.restore(saved)
                learner.origin = f"{LIVE}, going on from what was saved"
            except InvalidInput as error:
                log.info("learned headroom begins anew", autoscaler=str(key_of(hpa)), reason=str(error))
        return learner
