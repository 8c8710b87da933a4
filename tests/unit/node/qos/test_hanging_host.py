"""Strategies on a host that hangs: nothing else waits for them, and a stop does not wait for ever."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from kubetide.clock import LoopClock
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.plan import Plan
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.host.worker import Inline
from kubetide.node.strategy_runner import RELEASE_SECONDS, QosController
from kubetide.telemetry import Telemetry
from nodeworld import START, World

T = TypeVar("T")


@dataclass
class Hanging(Inline):
    """A worker that does nothing any more."""

    calls: int = 0

    async def call(self, work: Callable[[], T], what: str = "") -> T:
        self.calls += 1
        await asyncio.Event().wait()
        raise AssertionError("it never comes back")

    def hanging(self) -> str:
        return "reading values for looking has not come back for 60 s"


class Looking:
    """A strategy that looks at a kernel value, and would take something back."""

    name, gate, interval = "looking", "Looking", timedelta(seconds=1)

    def needs(self, snapshot: Snapshot) -> Needs:
        return Needs(quotas=["kubepods.slice"])

    def decide(self, snapshot: Snapshot) -> Plan:
        return Plan()

    def release(self, snapshot: Snapshot) -> Plan:
        return Plan()


def test_a_stop_waits_for_a_hanging_host_only_so_long() -> None:
    world = World()
    worker = Hanging()

    async def main() -> float:
        clock = LoopClock(START)
        qos = QosController(
            [Looking()],
            snapshot=world.snapshot,
            read=world.reader.read,
            executor=world.executor,
            evictor=None,
            clock=clock,
            telemetry=Telemetry(),
            node_name="n",
            gates={"Looking": True},
            kernel=worker,
        )
        running = asyncio.get_running_loop().create_task(qos.run())
        await asyncio.sleep(60)
        assert qos.ready()
        assert worker.calls == 1, "a round that hangs is not started a second time"
        stopped = clock.monotonic()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return clock.monotonic() - stopped

    assert run_virtual(main()) == RELEASE_SECONDS
    assert worker.calls == 2
