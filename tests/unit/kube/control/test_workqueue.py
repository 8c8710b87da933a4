"""The queue that waits: for keys, for delays, and no faster than its rate."""

import asyncio
from datetime import timedelta

import pytest

from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.control.workqueue import WorkQueue


def test_a_worker_waits_until_a_key_comes() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=virtual_clock())
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(5)
            queue.add("a")
            assert await waiting == "a"

    run_virtual(main())


def test_a_delay_can_be_cut_short() -> None:
    async def main() -> None:
        clock = virtual_clock()
        queue: WorkQueue[str] = WorkQueue(clock=clock)
        queue.add_after("a", timedelta(hours=1))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(10)
            queue.add_after("a", 5)
            assert await waiting == "a"
        assert clock.monotonic() == pytest.approx(15)
        assert queue.delayed == 0

    run_virtual(main())


def test_every_waiting_worker_gets_a_key() -> None:
    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue(clock=virtual_clock())
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(queue.get()) for _ in range(5)]
            await asyncio.sleep(1)
            for number in range(5):
                queue.add(number)
            assert sorted([await task or 0 for task in waiting]) == [0, 1, 2, 3, 4]
        assert queue.running == 5

    run_virtual(main())


def test_a_key_taken_from_a_worker_that_is_cancelled_goes_to_the_next() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=virtual_clock())
        async with asyncio.TaskGroup() as group:
            first = group.create_task(queue.get())
            second = group.create_task(queue.get())
            await asyncio.sleep(1)
            queue.add("a")
            first.cancel()
            assert await second == "a"

    run_virtual(main(), limit=timedelta(minutes=1))


def test_a_key_that_comes_in_the_moment_in_which_a_worker_goes_is_for_another() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=virtual_clock())
        async with asyncio.TaskGroup() as group:
            goes, stays = [group.create_task(queue.get()) for _ in range(2)]
            await asyncio.sleep(1)
            goes.cancel()
            queue.add("a")
            assert await stays == "a"
        assert goes.cancelled()

        alone = asyncio.get_running_loop().create_task(queue.get())
        await asyncio.sleep(1)
        alone.cancel()
        queue.add("b")
        await asyncio.wait({alone})
        assert await queue.get() == "b"

    run_virtual(main())


def test_delays_are_kept_when_those_who_waited_for_them_are_gone() -> None:
    async def main() -> None:
        clock = virtual_clock()
        queue: WorkQueue[str] = WorkQueue(clock=clock)
        queue.add_after("a", 10)
        async with asyncio.TaskGroup() as group:
            impatient = group.create_task(queue.get())
            await asyncio.sleep(1)
            impatient.cancel()
            await asyncio.sleep(1)
            assert await queue.get() == "a"
        assert clock.monotonic() == pytest.approx(10)

    run_virtual(main(), limit=timedelta(minutes=1))


def test_only_as_many_workers_wake_as_there_are_keys() -> None:
    async def main() -> None:
        clock = virtual_clock()
        queue: WorkQueue[str] = WorkQueue(clock=clock)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(queue.get()) for _ in range(4)]
            for delay, key in ((5, "a"), (9, "b")):
                queue.add_after(key, delay)
            await asyncio.sleep(6)
            assert [task.done() for task in waiting].count(True) == 1
            await asyncio.sleep(4)
            assert [task.done() for task in waiting].count(True) == 2
            for task in waiting:
                task.cancel()

    run_virtual(main(), limit=timedelta(minutes=1))


def test_a_key_that_somebody_begins_is_worked_on_by_nobody_else_and_comes_again_if_it_was_added_meanwhile() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=virtual_clock())
        assert queue.begin("a")
        assert not queue.begin("a")
        queue.add("a")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(1)
            assert not waiting.done()
            queue.done("a")
            assert await waiting == "a"
        queue.add("b")
        assert not queue.begin("b")  # a worker is about to
        queue.add("c", urgent=True)
        assert not queue.begin("c")
        assert (await queue.get(), await queue.get()) == ("c", "b")

    run_virtual(main())
