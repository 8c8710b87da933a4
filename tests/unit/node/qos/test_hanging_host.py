"""Strategies on a host that hangs: nothing else waits for them, and a stop does not wait for ever."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from kubetide.clock import LoopClock
from kubetide.embedded.sim.loop import run_virtual
from kubetide.node.host.worker import Inline
from kubetide.node.qos.controller import RELEASE_SECONDS, QosController
from kubetide.node.qos.suppress import CpuSuppress
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
        return "reading values for cpu-suppress has not come back for 60 s"


def test_a_stop_waits_for_a_hanging_host_only_so_long() -> None:
    world = World()
    worker = Hanging()

    async def main() -> float:
        clock = LoopClock(START)
        qos = QosController(
            [CpuSuppress(interval=timedelta(seconds=1))],
            snapshot=world.snapshot,
            read=world.reader.read,
            executor=world.executor,
            evictor=None,
            clock=clock,
            telemetry=Telemetry(),
            node_name="n",
            gates={"BECPUSuppress": True},
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
