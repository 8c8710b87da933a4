"""Writes what was decided: the scale of the target, the status of the autoscaler, the events about both.

A scale is written at once. A status stands back while autoscalers wait that samples have woken: what it reports is
done, and theirs is not.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.events import Event
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaStatus
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.scheme import HPAS
from kubetide.errors import KubetideError
from kubetide.hpa.core import events
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.observation import Conclusion, HpaProblem, ProblemKind, ScaleDecision
from kubetide.hpa.core.status import object_body, only_drifted, same_status
from kubetide.hpa.core.takeover import FIELD_MANAGER
from kubetide.hpa.scale_writer import ScaleOutdated, ScaleWriter
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.scale import ScaleTarget
from kubetide.log import get_logger

log = get_logger("hpa")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a decision."""

    outcome: Conclusion
    problem: HpaProblem | None
    rescaled: bool
    saved: HorizontalPodAutoscaler | None
    """The autoscaler as the server has it after the write of its status; None if there was none."""
    save_failed: bool


class DecisionWriter:
    """Applies decisions, each write at most once per reconcile."""

    def __init__(
        self,
        client: Client,
        scales: ScaleWriter,
        recorder: Recorder,
        *,
        status_interval: timedelta = timedelta(0),
        behind: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """`behind` lets what is urgent go before what is done in it."""
        self._client = client
        self._behind = behind
        self._scales = scales
        self._recorder = recorder
        self._status_interval = status_interval

    async def apply(
        self,
        decision: ScaleDecision,
        target: ScaleTarget | None,
        *,
        followed: bool = False,
        saved_at: datetime | None = None,
    ) -> Written:
        """Write the scale and the status as decided, and publish events; `saved_at`: its last write.

        Raises ScaleOutdated, with nothing written, where the scale was `followed` and is another one.
        """
        hpa = decision.hpa
        scale_error: str | None = None
        if decision.rescale and target is not None:
            scale_error = await self._rescale(decision, target, followed=followed)
        outcome = conclude(decision, scale_error=scale_error)
        self.publish(outcome.events)
        problem = outcome.problem
        saved, save_error = await self.save(hpa, outcome.status, at=decision.at, saved_at=saved_at)
        if save_error is not None and outcome.save_error_counts:
            problem = save_error
        self.publish(outcome.events_after_save)
        rescaled = decision.rescale and scale_error is None
        return Written(
            outcome=outcome, problem=problem, rescaled=rescaled, saved=saved, save_failed=save_error is not None
        )

    def publish(self, published: Iterable[Event]) -> None:
        """Hand events to the recorder."""
        for event in published:
            self._recorder.publish(event)

    async def _rescale(self, decision: ScaleDecision, target: ScaleTarget, *, followed: bool) -> str | None:
        try:
            await self._scales.write(target, decision.desired, followed=followed)
        except ScaleOutdated:
            raise
        except KubetideError as error:
            return str(error)
        log.info(
            "scaled",
            autoscaler=str(key_of(decision.hpa)),
            target=f"{target.resource.kind}/{target.name}",
            previous=decision.current,
            replicas=decision.desired,
            reason=decision.why,
        )
        return None

    def _may_wait(self, hpa: HorizontalPodAutoscaler, status: HpaStatus, at: datetime, saved: datetime | None) -> bool:
        """Return whether a status says nothing but values that moved a little since it was written not long ago."""
        if saved is None or at - saved >= self._status_interval:
            return False
        return only_drifted(hpa.status, status)

    async def save(
        self,
        hpa: HorizontalPodAutoscaler,
        status: HpaStatus,
        *,
        at: datetime,
        saved_at: datetime | None,
        moved: bool = False,
    ) -> tuple[HorizontalPodAutoscaler | None, HpaProblem | None]:
        """Write a status that cannot wait, if there is anything new in it; return what the server made of it.

        `moved` says that a value is known to differ by more than a status may be off.
        """
        if not moved and (self._may_wait(hpa, status, at, saved_at) or same_status(hpa.status, status)):
            return None, None
        meta = hpa.metadata
        try:
            async with self._behind():
                saved = await self._client.update(
                    HPAS,
                    meta.name,
                    object_body(hpa, status),
                    namespace=meta.namespace,
                    subresource="status",
                    field_manager=FIELD_MANAGER,
                )
        except KubetideError as error:
            log.warning("cannot write the status", autoscaler=str(key_of(hpa)), error=str(error))
            self.publish((events.failed(hpa, events.Reason.FAILED_UPDATE_STATUS, str(error)),))
            return None, HpaProblem(ProblemKind.UPDATE_STATUS, str(error))
        return saved, None
