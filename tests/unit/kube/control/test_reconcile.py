"""Workers: results, errors, isolation, and a stop that lets work finish."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import TerminalError
from kubetide.kube.control.reconcile import Reconciled, Result, Workers
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.kube.pacing import Backoff


class Calls:
    """A reconciler that notes when it was called, and does as it is told."""

    def __init__(self, behave: Callable[[str, int], Awaitable[Result]]) -> None:
        self._behave = behave
        self.times: dict[str, list[float]] = {}
        self.finished: list[str] = []

    async def reconcile(self, key: str) -> Result:
        times = self.times.setdefault(key, [])
        times.append(asyncio.get_running_loop().time())
        result = await self._behave(key, len(times))
        self.finished.append(key)
        return result


async def running(calls: Calls, keys: str, seconds: float, *, workers: int = 1, grace: float = 3) -> WorkQueue[str]:
    queue: WorkQueue[str] = WorkQueue(clock=virtual_clock(), name="test", backoff=Backoff(base=1, cap=8, jitter=0))
    for key in keys:
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            Workers(queue, calls.reconcile, workers=workers, stop_grace=timedelta(seconds=grace)).run()
        )
        await asyncio.sleep(seconds)
        task.cancel()
    return queue


def test_a_result_says_when_to_come_back() -> None:
    async def behave(key: str, call: int) -> Result:
        return Result(requeue_after=timedelta(seconds=15))

    calls = Calls(behave)
    run_virtual(running(calls, "a", 50))
    assert calls.times["a"] == [0, 15, 30, 45]


def test_a_plain_result_waits_for_a_change() -> None:
    async def behave(key: str, call: int) -> Result:
        return Result()

    calls = Calls(behave)
    run_virtual(running(calls, "a", 1000))
    assert calls.times["a"] == [0]


def test_errors_are_tried_again_with_growing_delays_until_one_succeeds() -> None:
    async def behave(key: str, call: int) -> Result:
        if call <= 3:
            raise ValueError("not yet")
        return Result()

    calls = Calls(behave)
    queue = run_virtual(running(calls, "a", 100))
    assert calls.times["a"] == [0, 1, 3, 7]
    assert queue.failures("a") == 0


def test_a_terminal_error_is_not_tried_again() -> None:
    async def behave(key: str, call: int) -> Result:
        raise TerminalError("the spec makes no sense")

    calls = Calls(behave)
    run_virtual(running(calls, "a", 1000))
    assert calls.times["a"] == [0]


def test_one_key_that_fails_does_not_hold_up_another() -> None:
    async def behave(key: str, call: int) -> Result:
        if key == "a":
            raise RuntimeError("bug")
        return Result(requeue_after=timedelta(seconds=10))

    calls = Calls(behave)
    run_virtual(running(calls, "ab", 25))
    assert calls.times["b"] == [0, 10, 20]


def test_workers_run_side_by_side_but_never_on_the_same_key() -> None:
    async def behave(key: str, call: int) -> Result:
        await asyncio.sleep(1)
        return Result()

    calls = Calls(behave)
    run_virtual(running(calls, "abcd", 1.5, workers=4))
    assert {key: times[0] for key, times in calls.times.items()} == dict.fromkeys("abcd", 0)


def test_work_in_flight_finishes_when_stopped_in_time() -> None:
    async def behave(key: str, call: int) -> Result:
        await asyncio.sleep(2)
        return Result()

    calls = Calls(behave)
    run_virtual(running(calls, "a", 0.5, grace=3))
    assert calls.finished == ["a"]


def test_work_that_does_not_finish_is_cut_off_after_the_grace() -> None:
    async def main() -> float:
        async def behave(key: str, call: int) -> Result:
            await asyncio.sleep(1000)
            return Result()

        await running(Calls(behave), "a", 0.5, grace=3)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3.5)


def test_outcomes_are_shown() -> None:
    async def main() -> list[Reconciled]:
        async def behave(key: str, call: int) -> Result:
            await asyncio.sleep(2)
            if key == "b":
                raise ValueError("no")
            return Result()

        seen: list[Reconciled] = []
        queue: WorkQueue[str] = WorkQueue(clock=virtual_clock(), backoff=Backoff(base=100))
        queue.add("a")
        queue.add("b")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(Workers(queue, Calls(behave).reconcile, observe=seen.append).run())
            await asyncio.sleep(10)
            task.cancel()
        return seen

    first, second = run_virtual(main())
    assert (first.seconds, first.error) == (2, None)
    assert isinstance(second.error, ValueError)


def test_a_cancellation_that_leaks_from_inside_does_not_cost_a_worker() -> None:
    async def behave(key: str, call: int) -> Result:
        if call == 1:
            raise asyncio.CancelledError
        return Result()

    calls = Calls(behave)
    run_virtual(running(calls, "a", 10))
    assert calls.times["a"] == [0, 1]


class TwoParts:
    """Reconciles in two parts of a second, the second behind what is urgent; notes which began when."""

    def __init__(self, workers: int) -> None:
        self.queue: WorkQueue[str] = WorkQueue(clock=virtual_clock(), name="test")
        self.workers: Workers[str] = Workers(self.queue, self._reconcile, workers=workers)
        self.done: list[str] = []
        self.first = self.second = self.most_first = self.most_second = 0

    async def _reconcile(self, key: str) -> Result:
        self.first += 1
        self.most_first = max(self.most_first, self.first)
        await asyncio.sleep(1)
        self.first -= 1
        self.done.append(f"{key} first")
        async with self.workers.behind():
            self.second += 1
            self.most_second = max(self.most_second, self.second)
            await asyncio.sleep(1)
            self.second -= 1
        self.done.append(f"{key} second")
        return Result()

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.workers.run())
            await asyncio.sleep(seconds)
            task.cancel()


def parts_of(keys: str, part: str) -> set[str]:
    return {f"{key} {part}" for key in keys}


def test_what_can_wait_gives_way_to_what_is_urgent_and_nothing_is_lost() -> None:
    async def main() -> None:
        work = TwoParts(workers=5)
        keys = "abcdefghijklmnopqrst"
        for key in keys:
            work.queue.add(key, urgent=True)
        await work.run(60)
        # 20 first parts, five at a time, and meanwhile one second part at a time.
        assert parts_of(keys, "first") <= set(work.done[: len(keys) + 4])
        assert sorted(work.done) == sorted(parts_of(keys, "first") | parts_of(keys, "second"))
        assert work.most_first == 5

    run_virtual(main())


def test_without_anything_urgent_a_key_keeps_its_worker() -> None:
    async def main() -> None:
        work = TwoParts(workers=2)
        for key in "abcd":
            work.queue.add(key)
        await work.run(60)
        assert work.done == [f"{key} {part}" for pair in ("ab", "cd") for part in ("first", "second") for key in pair]

    run_virtual(main())


def test_what_is_not_urgent_goes_on_however_much_is() -> None:
    async def main() -> None:
        work = TwoParts(workers=1)
        work.queue.add("z")
        for key in "abcdefghijklmnop":
            work.queue.add(key, urgent=True)
        await work.run(60)
        assert work.done.index("z first") < work.done.index("j first")
        assert work.done.index("a second") < work.done.index("p first")

    run_virtual(main())


def test_as_many_work_at_once_after_some_gave_way_as_before() -> None:
    async def main() -> None:
        work = TwoParts(workers=3)
        for key in "abcdefghi":
            work.queue.add(key, urgent=True)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work.workers.run())
            await asyncio.sleep(60)
            work.most_first = work.most_second = 0
            for key in "ABCDEFGHI":
                work.queue.add(key)
            await asyncio.sleep(60)
            task.cancel()
        assert (work.most_first, work.most_second) == (3, 3)

    run_virtual(main())


def test_a_stop_lets_those_finish_that_gave_way() -> None:
    async def main() -> None:
        work = TwoParts(workers=5)
        for key in "abcdefghijklmno":
            work.queue.add(key, urgent=True)
        # Two rounds of five are through their first part; the third is in it.
        await work.run(2.5)
        assert {f"{key} second" for key in "abcdefghijklmno"} <= set(work.done)

    run_virtual(main())
