"""The controller frame: order of start, terms of leadership, rhythm of periodic work, health."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, KeyedLoop, PeriodicLoop, next_due
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result
from kubetide.telemetry import Telemetry

MINUTE = timedelta(minutes=1)


def now() -> float:
    return asyncio.get_running_loop().time()


async def run_for(seconds: float, *work: Awaitable[None]) -> None:
    async with asyncio.TaskGroup() as group:

        async def one(each: Awaitable[None]) -> None:
            await each

        tasks = [group.create_task(one(each)) for each in work]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()


class SlowCache:
    """A cache that takes a while to fill."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._synced = asyncio.Event()
        self.stopped_at = -1.0

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        try:
            await asyncio.sleep(self._seconds)
            self._synced.set()
            await asyncio.Event().wait()
        finally:
            self.stopped_at = now()


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(0, 60, id="a-run-without-length"),
        pytest.param(59, 60, id="a-run-that-ends-in-time"),
        pytest.param(60, 60, id="a-run-that-ends-with-the-next-tick"),
        pytest.param(61, 60, id="one-tick-missed-is-made-up-for-at-once"),
        pytest.param(119, 60, id="still-one"),
        pytest.param(150, 120, id="of-several-missed-only-the-last-is-made-up-for"),
    ],
)
def test_the_next_due_keeps_the_rhythm(at: float, expected: float) -> None:
    assert next_due(0, 60, now=at) == expected


def test_periodic_work_keeps_its_rhythm_however_long_a_run_takes() -> None:
    async def main() -> list[float]:
        lengths = iter([10.0, 150.0, 0.0, 0.0])
        starts: list[float] = []

        async def once() -> None:
            starts.append(now())
            await asyncio.sleep(next(lengths, 0.0))

        await run_for(400, PeriodicLoop("test", once, clock=virtual_clock(), interval=MINUTE).run())
        return starts

    # The second run ends at 270; the one due at 240 is made up for at once, the one due at 180 is not.
    assert run_virtual(main()) == [60, 120, 270, 300, 360]


def test_the_first_run_may_come_at_once() -> None:
    async def main() -> list[float]:
        starts: list[float] = []

        async def once() -> None:
            starts.append(now())

        loop = PeriodicLoop("test", once, clock=virtual_clock(), interval=MINUTE, first_after=timedelta(0))
        await run_for(61, loop.run())
        return starts

    assert run_virtual(main()) == [0, 60]


def test_a_run_that_fails_is_counted_and_the_next_one_comes_at_its_time() -> None:
    async def main() -> tuple[int, str]:
        runs = 0

        async def fail() -> None:
            raise KubetideError("no")

        async def once() -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise KubetideError("not yet")
            if runs == 2:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())

        telemetry = Telemetry()
        await run_for(
            200, PeriodicLoop("test", once, clock=virtual_clock(), interval=MINUTE, telemetry=telemetry).run()
        )
        return runs, telemetry.render().decode()

    runs, text = run_virtual(main())
    assert runs == 3
    assert 'controller_runtime_reconcile_total{controller="test",result="error"} 2.0' in text
    assert 'controller_runtime_reconcile_total{controller="test",result="success"} 1.0' in text


def test_a_bug_in_periodic_work_is_not_hidden() -> None:
    async def main() -> None:
        async def once() -> None:
            raise LookupError("bug")

        await PeriodicLoop("test", once, clock=virtual_clock(), interval=MINUTE).run()

    with pytest.raises(LookupError, match="bug"):
        run_virtual(main())


def test_a_run_that_hangs_is_reported_and_a_stopped_loop_is_not() -> None:
    async def main() -> None:
        async def hang() -> None:
            await asyncio.Event().wait()

        controller = Controller(
            "test",
            clock=virtual_clock(),
            loops=[PeriodicLoop("test", hang, clock=virtual_clock(), interval=MINUTE)],
        )
        assert controller.healthy()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            await asyncio.sleep(359)
            assert controller.healthy()
            await asyncio.sleep(2)
            assert not controller.healthy()
            task.cancel()
        assert controller.healthy()

    run_virtual(main())


def test_work_starts_once_all_caches_are_synced_and_they_outlive_it() -> None:
    async def main() -> None:
        book: list[tuple[str, float]] = []

        async def reconcile(key: str) -> Result:
            book.append((key, now()))
            return Result()

        async def beside() -> None:
            book.append(("background", now()))
            await asyncio.Event().wait()

        keyed = KeyedLoop("test", reconcile, clock=virtual_clock())
        keyed.add("early")
        caches = [SlowCache(5), SlowCache(10)]
        controller = Controller("test", clock=virtual_clock(), caches=caches, loops=[keyed], background=[beside])
        assert not controller.ready()
        await run_for(30, controller.run())
        assert controller.ready()
        assert book == [("background", 0), ("early", 10)]
        assert [cache.stopped_at for cache in caches] == [30, 30]

    run_virtual(main())


class Candidate(Controller):
    """Reconciles one key whenever it leads."""

    def __init__(self, api: ApiServer, name: str, clock: Clock) -> None:
        self.book: list[tuple[str, float]] = []
        self.keyed: KeyedLoop[str] = KeyedLoop("work", self._reconcile, clock=clock)
        leadership = Leadership(
            Client(InProcessTransport(api), clock=clock),
            clock=clock,
            enabled=True,
            lease_name="test",
            namespace="kube-system",
            rng=Random(1),
            identity=name,
        )
        super().__init__(name, clock=clock, loops=[self.keyed], leadership=leadership)

    async def started_leading(self) -> None:
        self.book.append(("started", now()))
        self.keyed.add("everything")

    def stopped_leading(self) -> None:
        self.book.append(("stopped", now()))

    async def _reconcile(self, key: str) -> Result:
        self.book.append((key, now()))
        return Result(requeue_after=timedelta(hours=1))


def test_only_the_leader_works_and_a_standby_reports_it() -> None:
    async def main() -> None:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        first, second = Candidate(api, "first", clock), Candidate(api, "second", clock)
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first.run())
            await asyncio.sleep(1)
            two = group.create_task(second.run())
            await asyncio.sleep(60)
            assert (first.leading, second.leading) == (True, False)
            assert first.notes() == ()
            assert second.notes() == ("stands by: does not hold the lease kube-system/test",)
            assert second.ready()
            second.keyed.add("seen while standing by")
            one.cancel()
            await asyncio.sleep(10)
            assert second.leading
            two.cancel()
        assert [what for what, _ in first.book] == ["started", "everything", "stopped"]
        assert [what for what, _ in second.book] == ["started", "seen while standing by", "everything", "stopped"]
        assert second.book[0][1] >= first.book[-1][1]

    run_virtual(main())


def test_a_term_leaves_no_delayed_key_to_the_next_one() -> None:
    async def main() -> None:
        clock = virtual_clock()
        candidate = Candidate(ApiServer(clock=clock), "only", clock)
        for _ in range(2):
            await run_for(10, candidate.run())
            assert (len(candidate.keyed.queue), candidate.keyed.queue.delayed) == (0, 0)
        assert [what for what, _ in candidate.book] == ["started", "everything", "stopped"] * 2

    run_virtual(main())


def reconcile_with(error: Exception) -> Callable[[str], Awaitable[Result]]:
    async def reconcile(key: str) -> Result:
        raise error

    return reconcile


def test_a_loop_may_retry_only_what_it_expects() -> None:
    async def main(error: Exception) -> int:
        loop = KeyedLoop("test", reconcile_with(error), clock=virtual_clock(), retry_on=KubetideError)
        loop.add("a")
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await loop.run()
        return 0

    assert run_virtual(main(KubetideError("try again"))) == 0
    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main(LookupError("bug")))
    assert isinstance(caught.value.exceptions[0], LookupError)
