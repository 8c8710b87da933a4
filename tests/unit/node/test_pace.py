"""What repeats keeps its pace by the clock, however long its work takes."""

import asyncio

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.supervisor import Pace
from simulated.cluster import run


def beats(work: list[float], interval: float = 1.0) -> list[float]:
    """Return when each piece of work began, in virtual time."""
    began: list[float] = []

    async def main(cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        start, pace = loop.time(), Pace(interval)
        for seconds in work:
            began.append(round(loop.time() - start, 6))
            await asyncio.sleep(seconds)
            await asyncio.sleep(pace.rest())

    run(main)
    return began


def test_work_within_the_interval_shifts_nothing() -> None:
    assert beats([0.1, 0.9, 0.0, 0.5, 0.0]) == [0, 1, 2, 3, 4]


def test_a_missed_beat_is_not_made_up_for_and_there_is_always_some_rest() -> None:
    assert beats([2.5, 0.0, 0.0]) == [0, 2.6, 3.6]
