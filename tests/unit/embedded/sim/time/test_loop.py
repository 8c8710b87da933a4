"""Virtual time: sleeps cost nothing, order is fixed, and a simulation that cannot go on says why."""

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from kubetide.embedded.sim.time.loop import (
    DEFAULT_START,
    Deadlock,
    Livelock,
    TimeLimitReached,
    VirtualLoop,
    run_virtual,
    set_speed,
    virtual_clock,
)
from kubetide.kube.wire import rest, wire_seconds, wire_timeout, wire_timers


def test_a_day_of_sleep_takes_no_time_and_moves_the_clock_by_a_day() -> None:
    async def main() -> datetime:
        clock = virtual_clock()
        await asyncio.sleep(86_400)
        return clock.now()

    assert run_virtual(main()) == DEFAULT_START + timedelta(days=1)


def test_a_clock_made_late_agrees_with_one_made_early() -> None:
    async def main() -> tuple[datetime, datetime]:
        early = virtual_clock()
        await asyncio.sleep(90)
        late = virtual_clock()
        await asyncio.sleep(10)
        return early.now(), late.now()

    early, late = run_virtual(main(), start=datetime(2026, 5, 1, tzinfo=UTC))
    assert early == late == datetime(2026, 5, 1, 0, 1, 40, tzinfo=UTC)


def test_a_clock_has_the_same_moment_once_and_every_other_anew() -> None:
    async def main() -> list[datetime]:
        clock = virtual_clock()
        told = [clock.now(), clock.now()]
        await asyncio.sleep(0.5)
        return [*told, clock.now(), virtual_clock().now()]

    first, again, later, other = run_virtual(main())
    assert first is again
    assert later == other == first + timedelta(seconds=0.5)


def test_timers_fire_in_order_of_their_time_and_then_of_their_making() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def mark(name: str, delay: float) -> None:
            await asyncio.sleep(delay)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name, delay in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0)):
                group.create_task(mark(name, delay))
        return order

    assert run_virtual(main()) == ["a", "b1", "b2", "c"]


def test_timers_of_one_instant_keep_their_order_among_any_number_of_others() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(500):
            loop.call_later(5.0, order.append, number)
            loop.call_later((number * 7919) % 11, int)
        await asyncio.sleep(20)
        return order

    assert run_virtual(main()) == list(range(500))


def test_a_timeout_obeys_virtual_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return loop.time()

    assert run_virtual(main()) == pytest.approx(30)


def test_a_deadlock_names_the_task_and_the_place_it_waits_in() -> None:
    async def waits_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_nothing(), name="forgotten")

    with pytest.raises(Deadlock, match=r"forgotten in (waits_for_nothing|wait)"):
        run_virtual(main())


def test_a_limit_ends_a_simulation_that_would_run_for_ever() -> None:
    async def main() -> None:
        for _ in range(10_000):
            await asyncio.sleep(60)

    with pytest.raises(TimeLimitReached, match="1:00:00"):
        run_virtual(main(), limit=timedelta(hours=1))


def test_tasks_that_only_keep_each_other_busy_are_reported() -> None:
    async def main() -> None:
        for _ in range(2_000_000):
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="virtual second 0"):
        run_virtual(main())


def test_blocking_work_runs_at_once_so_that_no_thread_brings_disorder() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(None, lambda: 41 + 1)
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return value, loop.time()

    assert run_virtual(main()) == (42, 0.0)


def test_cancelled_timers_are_cleared_away_and_the_others_ring_in_their_order() -> None:
    async def main() -> tuple[list[int], int]:
        loop = asyncio.get_running_loop()
        told: list[int] = []
        for number in range(30):
            loop.call_later(1000 - number // 2, told.append, number)
        for number in range(300):
            loop.call_later(1500 + number, told.append, -1).cancel()
        await asyncio.sleep(1)
        left = len(loop._scheduled)  # type: ignore[attr-defined]
        await asyncio.sleep(2000)
        return told, left

    expected = sorted(range(30), key=lambda number: (1000 - number // 2, number))
    assert run_virtual(main()) == (expected, 30)


def test_a_paced_loop_reaches_the_same_virtual_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(100)
        loop.set_speed(None)
        await asyncio.sleep(1000)
        return loop.time()

    assert run_virtual(main(), speed=10_000) == pytest.approx(1100)


def test_at_speed_zero_time_stands_still_and_sockets_are_served() -> None:
    async def main() -> tuple[bytes, float, bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = loop.call_later(1, lambda: None)
        loop.set_speed(0)
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.send(b"still here")
            told = await loop.sock_recv(left, 100)
        stood = loop.time(), timer.when() > loop.time()
        loop.set_speed(1000)
        await asyncio.sleep(10)
        return told, *stood

    assert run_virtual(main(), speed=1000) == (b"still here", 0.0, True)


def test_a_limit_of_a_connection_is_meant_in_real_seconds() -> None:
    async def main() -> list[float]:
        found = [wire_seconds(10)]
        set_speed(0)
        found.append(wire_seconds(10))
        set_speed(2)
        found.append(wire_seconds(10))
        set_speed(None)
        return [*found, wire_seconds(10)]

    assert run_virtual(main(), speed=240) == [2400, 2400, 20, 10]
    with asyncio.Runner() as real:
        assert real.run(main()) == [10, 10, 10, 10]


def test_real_timers_go_off_in_their_order_while_time_stands_still() -> None:
    async def main() -> tuple[list[str], float]:
        set_speed(0)
        told: list[str] = []
        timers = wire_timers()
        timers.call_later(0.02, lambda: told.append("second"))
        timers.call_later(0.01, lambda: told.append("first"))
        timers.call_later(0.015, lambda: told.append("never")).cancel()
        await rest(timers, 0.03)
        with pytest.raises(TimeoutError):
            async with wire_timeout(0.01):
                await asyncio.sleep(1)
        return told, asyncio.get_running_loop().time()

    assert run_virtual(main(), speed=1000) == (["first", "second"], 0.0)


def test_a_real_timer_that_is_cancelled_after_its_moment_stays_silent() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        timers = wire_timers()
        late = timers.call_later(0, lambda: told.append("late"))
        timers.call_later(-1, late.cancel)
        await rest(timers, 0.01)
        return told

    assert run_virtual(main(), speed=1000) == []


def test_real_timers_that_still_wait_when_the_pace_is_lifted_go_off() -> None:
    async def main() -> float:
        timers = wire_timers()
        waiting = asyncio.ensure_future(rest(timers, 0.01))
        await asyncio.sleep(0)
        set_speed(None)
        await waiting
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), speed=1) < 1


def test_without_a_pace_there_is_no_real_time() -> None:
    async def main() -> float:
        await rest(wire_timers(), 3600)
        with pytest.raises(TimeoutError):
            async with wire_timeout(3600):
                await asyncio.sleep(7200)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 7200


def history(speed: float | None, *, disturbed: bool) -> list[tuple[str, float]]:
    """Return when each of some tasks ran; `disturbed` by a socket that is never quiet and by timers of others."""

    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        told: list[tuple[str, float]] = []

        async def work(name: str, every: float) -> None:
            for _ in range(20):
                await asyncio.sleep(every)
                await loop.run_in_executor(None, lambda: None)
                told.append((name, loop.time()))

        async def disturb(left: socket.socket, right: socket.socket) -> None:
            while True:
                right.send(b"x")
                await loop.sock_recv(left, 1)
                loop.call_later(0.0137, int)
                await rest(wire_timers(), 0.0005)

        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            noise = asyncio.ensure_future(disturb(left, right)) if disturbed else None
            async with asyncio.TaskGroup() as group:
                for name, every in (("a", 0.1), ("b", 0.3), ("c", 1 / 3)):
                    group.create_task(work(name, every))
            if noise is not None:
                noise.cancel()
        return told

    return run_virtual(main(), speed=speed)


@pytest.mark.parametrize("disturbed", [False, True], ids=["in-peace", "disturbed"])
@pytest.mark.parametrize("speed", [20, 77, 1000, 100_000])
def test_neither_pace_nor_sockets_change_what_happens_when(speed: float, disturbed: bool) -> None:
    assert history(speed, disturbed=disturbed) == history(None, disturbed=False)


def test_between_two_timers_the_clock_stands_where_the_first_one_rang() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen: list[float] = []

        async def look() -> None:
            for _ in range(3):
                await rest(wire_timers(), 0.01)
                seen.append(loop.time())

        looking = asyncio.ensure_future(look())
        await asyncio.sleep(10)
        await looking
        return seen

    assert run_virtual(main(), speed=100) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_what_happens_is_what_happens_by_the_iterations_of_asyncio(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def history() -> list[tuple[float, int]]:
        rng, told = Random(seed), list[tuple[float, int]]()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            timers: list[asyncio.TimerHandle] = []

            async def work(number: int) -> None:
                for step in range(40):
                    await asyncio.sleep(rng.choice([0, 0, 0.5, 1, 1, 7.3, 5000]))
                    told.append((loop.time(), number))
                    again = 1000 * number + step
                    timers.append(loop.call_later(rng.choice([0, 0.5, 1, 90]), told.append, (loop.time(), again)))
                    loop.call_soon(told.append, (loop.time(), -again))
                    if rng.random() < 0.6:
                        rng.choice(timers).cancel()

            async with asyncio.TaskGroup() as group:
                for number in range(12):
                    group.create_task(work(number))

        run_virtual(main())
        return told

    by_its_own = history()
    monkeypatch.setattr("kubetide.embedded.sim.time.loop._JumpingSelector.only_jumps", lambda _: False)
    assert by_its_own == history()
    assert len(by_its_own) > 1000
