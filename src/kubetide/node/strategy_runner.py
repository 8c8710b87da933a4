"""Runs the strategies: each in its own loop, at its own interval, and none can stop another.

A sync takes a snapshot, reads the kernel values that the strategy needs, lets it decide, applies the writes, hands the
strategy what became of them, asks for the evictions and keeps the decision for `explain`. A strategy runs while its
feature gate is on and its interval is positive. When the agent stops, the strategies whose values would hurt without
it take them back.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kubetide import tracing
from kubetide.clock import Clock
from kubetide.log import get_logger
from kubetide.node.core.kernel_values import NOTHING, KernelValues, Needs
from kubetide.node.core.outcomes import Outcomes, failures
from kubetide.node.core.plan import Plan
from kubetide.node.core.qos.strategy import Cooling, Gated, Observing, Releasing, Remembering, Strategy
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.executor.evictor import NodeEvictor
from kubetide.node.executor.kernel_writer import Executor
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.supervisor import Pace
from kubetide.node.telemetry import Gauges
from kubetide.telemetry import Telemetry

log = get_logger("node.qos")

SHORTEST_COLLECT_INTERVAL = 1.0
RELEASE_SECONDS = 10.0
"""How long a stop waits for a host that may hang."""


class QosController:
    """The QoS half of the node agent."""

    def __init__(
        self,
        strategies: Sequence[Strategy],
        *,
        snapshot: Callable[[], Snapshot],
        read: Callable[[Needs], KernelValues],
        executor: Executor,
        evictor: NodeEvictor | None,
        clock: Clock,
        telemetry: Telemetry,
        node_name: str,
        gates: Mapping[str, bool],
        collect_interval: float = 1.0,
        prepare: Mapping[str, Callable[[Snapshot], Mapping[str, str]]] | None = None,
        kernel: Worker | None = None,
        release_on_stop: bool = True,
    ) -> None:
        self.name = "qos"
        self._snapshot = snapshot
        self._read = read
        self._executor = executor
        self._evictor = evictor
        self._clock = clock
        self._node_name = node_name
        self._prepare = dict(prepare or {})
        self._kernel = kernel or Inline()
        self._release_on_stop = release_on_stop
        self._gauges = Gauges(telemetry, node_name)
        self._rounds = telemetry.counter(
            "kubetide_node_strategy_rounds_total",
            "Syncs of the strategies, by outcome.",
            ("node", "strategy", "outcome"),
        )
        self._seconds = telemetry.histogram(
            "kubetide_node_strategy_seconds", "Duration of a sync of a QoS strategy.", ("node", "strategy")
        )
        enabled = collect_interval >= SHORTEST_COLLECT_INTERVAL
        self.strategies = [one for one in strategies if enabled and _enabled(one, gates)]
        self.decisions: dict[str, dict[str, Any]] = {}
        self._running = False
        self._failing: dict[str, str] = {}

    def ready(self) -> bool:
        """Whether the strategies run."""
        return self._running

    def healthy(self) -> bool:
        """A failing strategy is reported, not a reason to restart the others."""
        return True

    async def run(self) -> None:
        """Run all enabled strategies until cancelled, then take back what would hurt without the agent."""
        try:
            async with asyncio.TaskGroup() as group:
                for strategy in self.strategies:
                    group.create_task(self._loop(strategy), name=f"qos/{strategy.name}")
                self._running = True
                await asyncio.Event().wait()
        finally:
            self._running = False
            if self._release_on_stop:
                await self._release_in_time()

    async def _loop(self, strategy: Strategy) -> None:
        pace = Pace(strategy.interval.total_seconds())
        while True:
            with tracing.span(f"node/{strategy.name}"):
                await self.round(strategy)
            await asyncio.sleep(pace.rest())

    async def round(self, strategy: Strategy) -> Plan | None:
        """Sync one strategy; an error is logged once until it changes."""
        began = self._clock.monotonic()
        try:
            problems: Mapping[str, str] = {}
            if strategy.name in self._prepare:
                prepare = partial(self._prepare[strategy.name], self._snapshot())
                problems = await self._kernel.call(prepare, f"preparing {strategy.name}")
            plan = strategy.decide(await self._observed(strategy, problems))
            outcomes = await self._apply(strategy, plan)
            evicted = await self._evict(strategy, plan)
        except Exception as error:  # noqa: BLE001 - one failing strategy must not stop the others
            tracing.failed(error)
            self._failed(strategy, error)
            return None
        self._failing.pop(strategy.name, None)
        self._rounds.labels(self._node_name, strategy.name, "ok").inc()
        self._seconds.labels(self._node_name, strategy.name).observe(self._clock.monotonic() - began)
        self._gauges.show(strategy.name, plan, outcomes)
        tracing.annotate(writes=len(outcomes), evicted=len(evicted), reason=plan.trace)
        self.decisions[strategy.name] = {
            "at": self._clock.now().isoformat(),
            "writes": len(outcomes),
            "notWritten": failures(outcomes),
            "evicted": evicted,
            **plan.trace,
        }
        return plan

    async def _release_in_time(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self.release()
        except TimeoutError:
            log.warning("values not taken back: the host hangs", problem=self._kernel.hanging())

    async def release(self) -> None:
        """Apply what the strategies want to leave behind."""
        for strategy in self.strategies:
            if isinstance(strategy, Releasing):
                try:
                    await self._apply(strategy, strategy.release(await self._observed(strategy)))
                except Exception as error:  # noqa: BLE001 - the other strategies must still be released
                    self._failed(strategy, error)

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the last decision of every strategy of this node."""
        if kind != "node" or key != self._node_name:
            return None
        return {
            "node": self._node_name,
            "strategies": dict(self.decisions),
            "failing": dict(self._failing),
            "executor": {
                "written": self._executor.counts.written,
                "unchanged": self._executor.counts.unchanged,
                "skipped": self._executor.counts.skipped,
                "refused": self._executor.counts.refused,
                "failed": self._executor.counts.failed,
            },
        }

    async def _observed(self, strategy: Strategy, problems: Mapping[str, str] | None = None) -> Snapshot:
        """Return a snapshot with the kernel values that the strategy needs; `problems` tell more about missing ones."""
        snapshot = self._snapshot()
        if not isinstance(strategy, Observing):
            return snapshot
        needs = strategy.needs(snapshot)
        if needs is NOTHING:
            return snapshot
        reading = partial(self._read, needs)
        kernel = await self._kernel.call(reading, f"reading values for {strategy.name}")
        if problems:
            kernel = replace(kernel, problems={**kernel.problems, **problems})
        return replace(snapshot, kernel=kernel)

    async def _apply(self, strategy: Strategy, plan: Plan) -> Outcomes:
        """Write a plan and hand the outcomes to its strategy."""
        outcomes: Outcomes = ()
        if not plan.is_empty:
            outcomes = await self._kernel.call(
                partial(self._executor.apply, plan, strategy.name), f"writing values of {strategy.name}"
            )
        if isinstance(strategy, Remembering):
            strategy.applied(plan, outcomes)
        return outcomes

    async def _evict(self, strategy: Strategy, plan: Plan) -> list[str]:
        if self._evictor is None or not (plan.tasks or plan.notices):
            return []
        accepted = await self._evictor.carry_out(plan)
        if accepted and isinstance(strategy, Cooling):
            strategy.evicted(self._clock.now())
        return [f"{one.namespace}/{one.name}" for one in accepted]

    def _failed(self, strategy: Strategy, error: Exception) -> None:
        self._rounds.labels(self._node_name, strategy.name, "failed").inc()
        text = f"{type(error).__name__}: {error}"
        if self._failing.get(strategy.name) != text:
            self._failing[strategy.name] = text
            log.exception("strategy failed", strategy=strategy.name)


def _enabled(strategy: Strategy, gates: Mapping[str, bool]) -> bool:
    if strategy.interval.total_seconds() <= 0:
        return False
    return not isinstance(strategy, Gated) or gates.get(strategy.gate, False)
