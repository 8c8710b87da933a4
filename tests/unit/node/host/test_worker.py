"""The thread that owns the host: order, errors, and what goes on while it hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubetide.node.host.worker import Inline, Worker, WorkerThread


@asynccontextmanager
async def thread(**options: float) -> AsyncIterator[WorkerThread]:
    worker = WorkerThread("test", **options)  # type: ignore[arg-type]
    try:
        yield worker
    finally:
        assert await worker.close()


async def test_work_runs_on_one_thread_that_is_not_the_loops() -> None:
    async with thread() as worker:
        threads = {await worker.call(threading.get_ident) for _ in range(5)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_inline_work_runs_at_once() -> None:
    worker: Worker = Inline()
    assert await worker.call(threading.get_ident) == threading.get_ident()
    done: list[int] = []
    assert worker.post(lambda: done.append(1))
    assert done == [1]
    assert worker.hanging() == ""


@pytest.mark.parametrize("inline", [True, False])
async def test_an_error_reaches_whoever_waits_and_nobody_else(inline: bool) -> None:
    async with thread() as own:
        worker: Worker = Inline() if inline else own
        with pytest.raises(FileNotFoundError):
            await worker.call(lambda: open("/no/such/file"))  # noqa: SIM115 - it does not open
        worker.post(lambda: open("/no/such/file"))  # noqa: SIM115
        assert await worker.call(lambda: 2) == 2


async def test_what_work_hands_back_arrives_on_the_loop_before_its_result() -> None:
    seen: list[tuple[str, int]] = []

    async with thread() as worker:

        def work() -> str:
            for number in range(3):
                worker.hand_back(lambda n: seen.append((threading.current_thread().name, n)), number)
            return "result"

        assert await worker.call(work) == "result"
        assert seen == [(threading.current_thread().name, number) for number in range(3)]


async def test_the_loop_goes_on_while_the_thread_hangs_and_says_since_when() -> None:
    release = threading.Event()
    async with thread(hangs_after=0.0) as worker:
        waiting = asyncio.ensure_future(worker.call(lambda: release.wait(30), "reading memory.stat"))
        try:
            for _ in range(100):
                await asyncio.sleep(0)
            while not worker.hanging():  # noqa: ASYNC110 - the thread tells nobody when it begins
                await asyncio.sleep(0.001)
            assert worker.hanging().startswith("reading memory.stat has not come back")
            assert not waiting.done()
        finally:
            release.set()
        assert await waiting
    assert worker.hanging() == ""


async def test_posted_work_is_bounded_while_the_thread_hangs() -> None:
    release = threading.Event()
    done: list[int] = []
    async with thread(most_posted=3) as worker:
        hanging = asyncio.ensure_future(worker.call(lambda: release.wait(30)))
        while worker._busy is None:  # noqa: ASYNC110 - the thread tells nobody when it begins
            await asyncio.sleep(0.001)
        taken = [worker.post(lambda n=number: done.append(n)) for number in range(5)]  # type: ignore[misc]
        release.set()
        await hanging
        await worker.call(lambda: None)
        assert taken == [True, True, True, False, False]
        assert done == [0, 1, 2]
        assert worker.post(lambda: done.append(9))


async def test_a_caller_that_gives_up_takes_back_what_has_not_begun() -> None:
    release = threading.Event()
    done: list[str] = []
    async with thread() as worker:
        first = asyncio.ensure_future(worker.call(lambda: release.wait(30)))
        while worker._busy is None:  # noqa: ASYNC110 - the thread tells nobody when it begins
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await worker.call(lambda: done.append("late"))
        release.set()
        await first
        await worker.call(lambda: None)
    assert done == []


async def test_closing_does_what_was_handed_over_and_takes_nothing_more() -> None:
    worker = WorkerThread("test")
    done: list[int] = []
    for number in range(10):
        worker.post(lambda n=number: done.append(n))  # type: ignore[misc]
    assert await worker.close()
    assert done == list(range(10))
    assert not worker.post(lambda: done.append(99))
    with pytest.raises(OSError, match="after the end"):
        await worker.call(lambda: None)


async def test_a_thread_that_hangs_does_not_keep_the_agent_from_ending() -> None:
    worker = WorkerThread("test")
    release = threading.Event()
    worker.post(lambda: release.wait(30))
    try:
        assert not await worker.close(timeout=0.01)
    finally:
        release.set()
