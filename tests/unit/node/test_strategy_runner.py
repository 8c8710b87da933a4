"""The loops of the strategies: gates, intervals, isolation of failures, release, explanations."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from kubetide.clock import LoopClock
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.node.core.plan import Plan
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.strategy_runner import QosController
from kubetide.telemetry import Telemetry
from nodeworld import World


@dataclass
class Probe:
    """A strategy that counts its rounds and may fail."""

    name: str = "probe"
    gate: str = "Probe"
    interval: timedelta = timedelta(seconds=1)
    fails: bool = False
    rounds: int = 0
    released: int = 0
    rested: list[datetime] = field(default_factory=list)

    def decide(self, snapshot: Snapshot) -> Plan:
        self.rounds += 1
        if self.fails:
            raise RuntimeError("broken")
        return Plan(trace={"round": self.rounds})

    def release(self, snapshot: Snapshot) -> Plan:
        self.released += 1
        return Plan()


def controller(world: World, *strategies: Any, gates: dict[str, bool] | None = None, **options: Any) -> QosController:
    return QosController(
        strategies,
        snapshot=world.snapshot,
        read=world.reader.read,
        executor=world.executor,
        evictor=None,
        clock=options.pop("clock", world.clock),
        telemetry=Telemetry(),
        node_name="n",
        gates={"Probe": True, **(gates or {})},
        **options,
    )


def test_each_strategy_runs_at_its_own_interval_and_a_failing_one_stops_nobody() -> None:
    world = World()
    fast, slow, broken = Probe(), Probe(name="slow", interval=timedelta(seconds=5)), Probe(name="broken", fails=True)

    async def main() -> QosController:
        qos = controller(world, broken, fast, slow, clock=LoopClock(world.clock.now()))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(qos.run())
            await asyncio.sleep(10.5)
            running.cancel()
        return qos

    qos = run_virtual(main())
    assert (fast.rounds, slow.rounds, broken.rounds) == (11, 3, 11)
    assert (fast.released, broken.released) == (1, 1)
    explained = qos.explain("node", "n")
    assert explained is not None
    assert explained["strategies"]["probe"]["round"] == 11
    assert explained["failing"] == {"broken": "RuntimeError: broken"}
    assert qos.explain("node", "other") is None


@pytest.mark.parametrize(
    ("probe", "gates", "collect"),
    [
        pytest.param(Probe(interval=timedelta(0)), {}, 1.0, id="interval-zero"),
        pytest.param(Probe(), {"Probe": False}, 1.0, id="gate-off"),
        pytest.param(Probe(gate="Unknown"), {}, 1.0, id="gate-unknown"),
        pytest.param(Probe(), {}, 0.5, id="samples-too-frequent"),
    ],
)
def test_a_strategy_that_is_off_does_not_run(probe: Probe, gates: dict[str, bool], collect: float) -> None:
    assert controller(World(), probe, gates=gates, collect_interval=collect).strategies == []
