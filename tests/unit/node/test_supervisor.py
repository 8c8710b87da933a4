"""Watching over modules: restarts with pauses, barriers that say what they wait for, notes for people."""

import asyncio
import itertools
from random import Random

from kubetide.clock import LoopClock
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual
from kubetide.node.supervisor import ModuleState, ModuleWatch
from kubetide.telemetry import Telemetry


def test_a_module_that_fails_is_started_again_while_others_go_on() -> None:
    async def main() -> None:
        telemetry = Telemetry()
        watch = ModuleWatch(LoopClock(DEFAULT_START), Random(1), telemetry, "here")
        tries: list[float] = []
        steady = 0

        async def failing() -> None:
            tries.append(asyncio.get_running_loop().time())
            raise OSError("no such luck")

        async def going_on() -> None:
            nonlocal steady
            while True:
                steady += 1
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            watch.start(group, "failing", failing)
            watch.start(group, "steady", going_on)
            await asyncio.sleep(600)
            assert steady == 600
            assert watch.states["failing"].note().startswith("restarting after OSError")
            assert "luck" not in watch.states["failing"].note()
            assert watch.states["failing"].shown()["error"] == "OSError: no such luck"
            assert watch.states["steady"].note() == ""
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
        pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert pauses[0] < 3
        assert 30 < pauses[-1] <= 90
        assert b'kubetide_node_module_restarts_total{module="failing",node="here"}' in telemetry.render()

    run_virtual(main(), start=DEFAULT_START)


def test_a_barrier_reports_what_it_waits_for() -> None:
    async def main() -> None:
        watch = ModuleWatch(LoopClock(DEFAULT_START), Random(1), Telemetry(), "here")
        missing = ["pods", "nodes"]
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.barrier("state", lambda: list(missing)))
            await asyncio.sleep(1)
            assert watch.states["barrier/state"].note() == "waits for pods, nodes"
            missing.clear()
        assert watch.states["barrier/state"] == ModuleState(status="passed")

    run_virtual(main(), start=DEFAULT_START)
