"""Watches over the modules of the agent: starts each one, starts it again when it fails, and waits at barriers.

A module that fails is started again with growing pauses while the others go on; a minute of health makes the next
pause short again. A barrier holds back what needs the data of others, and says for whom it waits. What repeats keeps
its pace by the clock, however long its work takes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from kubetide.clock import Clock
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("node")

_POLL_SECONDS = 0.1
_TELL_EVERY = 30.0
_RESTART = Backoff(base=1.0, factor=2.0, cap=60.0, jitter=0.5)
_HEALTHY_AFTER = 60.0


@dataclass(slots=True)
class ModuleState:
    """How a part of the agent is doing."""

    status: str = "waiting"
    restarts: int = 0
    error: str = ""
    waiting_for: list[str] = field(default_factory=list)

    def note(self) -> str:
        """Return what is not as it should be, in words that name no object; empty while all is healthy."""
        if self.waiting_for:
            return f"waits for {', '.join(self.waiting_for)}"
        if self.status == "restarting":
            return f"restarting after {self.error.partition(':')[0]}, {self.restarts} so far"
        return f"running, {self.restarts} restarts" if self.restarts else ""

    def shown(self) -> dict[str, object]:
        """Return what there is to say."""
        fields = {
            "status": self.status,
            "restarts": self.restarts,
            "error": self.error,
            "waitingFor": self.waiting_for,
        }
        return {name: value for name, value in fields.items() if value}


class ModuleWatch:
    """The modules of one agent and how they are doing."""

    def __init__(self, clock: Clock, rng: Random, telemetry: Telemetry, node_name: str) -> None:
        self.states: dict[str, ModuleState] = {}
        self._clock = clock
        self._rng = rng
        self._node_name = node_name
        self._restarts = telemetry.counter(
            "kubetide_node_module_restarts_total", "Restarts of parts of the agent.", ("node", "module")
        )

    def start(self, group: asyncio.TaskGroup, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a module in the group."""
        self.states[name] = ModuleState()
        group.create_task(self._keep_running(name, run), name=f"node/{name}")

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        state = self.states[name]
        failures = 0
        while True:
            began = self._clock.monotonic()
            state.status = "running"
            try:
                await run()
                state.status = "ended"
                return
            except Exception as error:
                if self._clock.monotonic() - began > _HEALTHY_AFTER:
                    failures = 0
                state.status, state.error = "restarting", f"{type(error).__name__}: {error}"
                state.restarts += 1
                log.exception("module failed, starting it again", module=name)
            self._restarts.labels(self._node_name, name).inc()
            await asyncio.sleep(_RESTART.delay(failures, self._rng))
            failures += 1

    async def barrier(self, name: str, missing: Callable[[], list[str]]) -> None:
        """Wait until nothing is missing, and say what is."""
        state = self.states[f"barrier/{name}"] = ModuleState()
        told = self._clock.monotonic()
        while waiting := missing():
            state.waiting_for = waiting
            if self._clock.monotonic() - told >= _TELL_EVERY:
                told = self._clock.monotonic()
                log.info("still waiting", barrier=name, missing=", ".join(waiting))
            await asyncio.sleep(_POLL_SECONDS)
        state.status, state.waiting_for = "passed", []


class Pace:
    """Beats of an interval: work that takes a part of it does not shift the next one."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.time()

    def rest(self) -> float:
        """Return how long to rest until the next beat; where work took longer than the interval, at least a tenth."""
        now = self._loop.time()
        self._next = max(self._next + self._interval, now + self._interval / 10)
        return self._next - now
