"""Repairs cgroups without any runtime: after every refresh of the pod list, and from time to time.

The runtime's hooks see a container once, when it is made. Rules change later, containers are made while the agent is
away, and others write too; so the same plugins also run over everything that is there. Wake-ups that arrive during a
pass collapse into one.

A pass reads what the hooks need, lets them decide from these values, writes, and hands them the outcomes. Reading and
writing happen on the worker that owns the host.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from kubetide.clock import Clock
from kubetide.log import get_logger
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import OOM_SCORE
from kubetide.node.core.kernel_values import KernelValues, Needs
from kubetide.node.core.outcomes import Applies, CookieOutcome, Outcomes, failures
from kubetide.node.core.plan import CookiePlan, Plan
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.runtime.core_sched import CookieKernel, apply_cookies, read_cookies
from kubetide.node.telemetry import CONTAINER_LABELS, MILLISECONDS, RoundGauge
from kubetide.telemetry import Telemetry

log = get_logger("node.hooks")


class HookReconciler:
    """Runs the hook plugins over all objects of the node."""

    def __init__(
        self,
        decider: HookDecider,
        *,
        snapshot: Callable[[], Snapshot],
        read: Callable[[Needs], KernelValues],
        executor: Applies,
        clock: Clock,
        telemetry: Telemetry,
        node_name: str,
        cookies: CookieKernel | None = None,
        kernel: Worker | None = None,
        interval: timedelta = timedelta(seconds=10),
    ) -> None:
        self.name = "runtime-hooks"
        self.decider = decider
        self.passes = 0
        self._snapshot = snapshot
        self._read = read
        self._executor = executor
        self._cookies = cookies
        self._kernel = kernel or Inline()
        self._clock = clock
        self._node_name = node_name
        self._interval = interval.total_seconds()
        self._wake = asyncio.Event()
        self._failing = ""
        self._last: dict[str, Any] = {}
        self._millis = telemetry.durations(
            "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
            "How long a pass over all objects takes.",
            ("node", "level", "status"),
            MILLISECONDS,
        )
        self._oom_scores = RoundGauge(
            telemetry.gauge("koordlet_container_oom_score_adj", "oom_score_adj of containers.", CONTAINER_LABELS)
        )
        self._cookie_gauge = telemetry.gauge(
            "koordlet_container_core_sched_cookie",
            "Core scheduling cookie of containers.",
            (
                "node",
                "pod_namespace",
                "pod_name",
                "pod_uid",
                "container_name",
                "container_id",
                "core_sched_group",
                "core_sched_cookie",
            ),
        )
        self._cookie_status = telemetry.counter(
            "koordlet_core_sched_cookie_manage_status",
            "Containers whose cookie was kept or could not be had, by group.",
            ("node", "core_sched_group", "status"),
        )

    def ready(self) -> bool:
        """Whether a first pass was made."""
        return self.passes > 0

    def healthy(self) -> bool:
        """A failing pass is logged and tried again."""
        return True

    def wake(self) -> None:
        """Ask for a pass soon: the pod list was refreshed, or a rule's object changed."""
        self._wake.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        while True:
            self._wake.clear()
            await self.reconcile()
            try:
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """Make one pass over all objects; an error is logged once until it changes."""
        decider = self.decider
        began, status = self._clock.monotonic(), "failed"
        try:
            snapshot = self._snapshot()
            needs = decider.needs(snapshot)
            kernel = await self._kernel.call(partial(self._read, needs), "reading values for the hooks")
            snapshot = await self._with_cookies(replace(snapshot, kernel=kernel))
            decider.switched(await self._apply(decider.switch(snapshot)))
            plan = decider.decide(snapshot)
            if plan.trace["changed"]:
                log.info("hook rules changed", plugins=plan.trace["changed"])
            outcomes = await self._apply(plan)
            decider.applied(plan, outcomes, await self._apply_cookies(plan.cookies))
            self._report_cookies(plan.cookies)
            self._last = {"at": self._clock.now().isoformat(), "notWritten": failures(outcomes), **plan.trace}
            self._show_oom_scores(outcomes)
            self._failing, status = "", "success"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._failing:
                self._failing = text
                log.exception("hook pass failed")
        self._millis.add(1000 * (self._clock.monotonic() - began), self._node_name, "all", status)
        self.passes += 1

    def _show_oom_scores(self, outcomes: Outcomes) -> None:
        self._oom_scores.begin()
        for write in (outcome.write for outcome in outcomes if outcome.in_force):
            if write.reason == OOM_SCORE:
                about = write.subject
                labels = (self._node_name, about.namespace, about.name, about.container_id, about.container)
                self._oom_scores.set(labels, float(write.value))
        self._oom_scores.end()

    async def _apply(self, plan: Plan) -> Outcomes:
        if plan.is_empty:
            return ()
        return await self._kernel.call(partial(self._executor.apply, plan), "writing values of the hooks")

    async def _with_cookies(self, snapshot: Snapshot) -> Snapshot:
        pids = sorted(self.decider.processes(snapshot))
        if self._cookies is None or not pids:
            return snapshot
        reading = partial(read_cookies, self._cookies, pids)
        found = await self._kernel.call(reading, "reading core scheduling cookies")
        return replace(snapshot, kernel=replace(snapshot.kernel, cookies=found))

    async def _apply_cookies(self, plan: CookiePlan | None) -> tuple[CookieOutcome, ...]:
        if self._cookies is None or plan is None or not plan.operations:
            return ()
        applying = partial(apply_cookies, self._cookies, plan.operations)
        return await self._kernel.call(applying, "sharing core scheduling cookies")

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what the last pass did on this node."""
        if kind != "node" or key != self._node_name:
            return None
        return {"node": self._node_name, "hooks": dict(self._last), "failing": self._failing}

    def _report_cookies(self, plan: CookiePlan | None) -> None:
        """Show the cookies in force, of all containers whose group is switched on."""
        self._cookie_gauge.clear()
        for one in plan.containers if plan is not None else ():
            if not one.enabled:
                continue
            cookie = self.decider.cookies.cookie_of(one)
            if one.pids:
                self._cookie_status.labels(self._node_name, one.group, "success" if cookie else "fail").inc()
            if cookie:
                container = (one.namespace, one.pod, one.uid, one.name, one.identity)
                self._cookie_gauge.labels(self._node_name, *container, one.group, str(cookie)).set(float(cookie))
