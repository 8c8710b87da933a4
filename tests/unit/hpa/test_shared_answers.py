"""Shared answers: asked once for all, never given twice to the same one, owned by whoever entered them."""

import asyncio
from collections.abc import Hashable
from datetime import timedelta

import pytest

from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.core.describe import MetricsRequest
from kubetide.hpa.shared_answers import SharedAnswers

PERIOD = timedelta(seconds=15)


class Source:
    """Answers with a number that grows, after a while."""

    def __init__(self, delay: float = 0.0, fails: bool = False) -> None:
        self.asked = 0
        self.cancelled = 0
        self._delay = delay
        self._fails = fails

    async def ask(self) -> int:
        self.asked += 1
        answer = self.asked
        try:
            await asyncio.sleep(self._delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self._fails:
            raise ValueError("no answer")
        return answer


def request(before: dict[Hashable, int] | None = None) -> MetricsRequest:
    return MetricsRequest(max_age=PERIOD, before=before or {})


async def get(answers: SharedAnswers, source: Source, who: MetricsRequest, question: str = "q") -> int:
    return await answers.get("resource", question, source.ask, who)


def test_many_share_one_answer_while_it_is_young() -> None:
    async def main() -> None:
        source = Source(delay=1.0)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            found = await asyncio.gather(*(get(answers, source, request()) for _ in range(50)))
            assert set(found) == {1}
            await asyncio.sleep(13)
            assert await get(answers, source, request()) == 1
            await asyncio.sleep(2)
            assert await get(answers, source, request()) == 2
            assert source.asked == 2

    run_virtual(main())


def test_nobody_is_given_the_same_answer_in_two_reconciles() -> None:
    async def main() -> None:
        source = Source()
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            first = request()
            assert await get(answers, source, first) == 1
            assert await get(answers, source, first) == 1
            assert await get(answers, source, request(before=first.used)) == 2
            assert await get(answers, source, request()) == 2

    run_virtual(main())


def test_an_answer_that_is_refreshed_makes_nobody_wait_and_is_given_to_all_who_come_after() -> None:
    async def main() -> None:
        source = Source(delay=1.0)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers, asyncio.TaskGroup() as group:
            early = group.create_task(get(answers, source, request()))
            await asyncio.sleep(0.5)
            refreshed = group.create_task(answers.refresh("resource", "q", source.ask))
            assert await early == 1
            assert await get(answers, source, request()) == 1, "what is there is good until the next is there"
            await refreshed
            assert await get(answers, source, request()) == 2
            assert source.asked == 2

    run_virtual(main())


def test_a_refresh_that_fails_leaves_the_answer_that_is_there() -> None:
    async def main() -> None:
        source = Source()
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            assert await get(answers, source, request()) == 1
            await answers.refresh("resource", "q", Source(fails=True).ask)
            assert await get(answers, source, request()) == 1

    run_virtual(main())


def test_failures_are_shared_like_answers() -> None:
    async def main() -> None:
        source = Source(fails=True)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            for _ in range(10):
                with pytest.raises(ValueError, match="no answer"):
                    await get(answers, source, request())
            assert source.asked == 1

    run_virtual(main())


def test_who_hangs_is_given_up() -> None:
    async def main() -> None:
        source = Source(delay=3600)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            with pytest.raises(TimeoutError):
                await get(answers, source, request())

    run_virtual(main())


def test_one_who_goes_away_does_not_take_the_answer_with_him() -> None:
    async def main() -> None:
        source = Source(delay=5)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            loop = asyncio.get_running_loop()
            leaving = loop.create_task(get(answers, source, request()))
            staying = loop.create_task(get(answers, source, request()))
            await asyncio.sleep(1)
            leaving.cancel()
            assert await staying == 1
            assert source.asked == 1

    run_virtual(main())


def test_old_answers_are_dropped() -> None:
    async def main() -> None:
        source = Source()
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            for number in range(100):
                await get(answers, source, request(), f"question {number}")
                await asyncio.sleep(10)
            assert len(answers._answers) < 10

    run_virtual(main())


def test_a_failure_ends_no_other_request() -> None:
    async def main() -> None:
        failing, fine = Source(delay=1, fails=True), Source(delay=5)
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers, asyncio.TaskGroup() as group:
            staying = group.create_task(get(answers, fine, request(), "fine"))
            with pytest.raises(ValueError, match="no answer"):
                await get(answers, failing, request(), "failing")
            assert await staying == 1

    run_virtual(main())


def test_nothing_is_in_flight_when_the_owner_has_left() -> None:
    async def main() -> None:
        source = Source(delay=3600)
        owner = SharedAnswers(virtual_clock(), timedelta(seconds=7200))
        async with owner as answers:
            waiting = asyncio.get_running_loop().create_task(get(answers, source, request()))
            await asyncio.sleep(1)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (source.asked, source.cancelled) == (1, 1)
        async with owner as answers:
            assert await get(answers, Source(), request()) == 1

    run_virtual(main())


def test_an_owner_that_is_cancelled_cancels_its_requests() -> None:
    async def main() -> None:
        source = Source(delay=3600)

        async def own() -> None:
            async with SharedAnswers(virtual_clock(), timedelta(seconds=7200)) as answers:
                await get(answers, source, request())

        owner = asyncio.get_running_loop().create_task(own())
        await asyncio.sleep(1)
        owner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await owner
        assert source.cancelled == 1

    run_virtual(main())


def test_the_error_of_the_owner_arrives_as_it_is() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="stopped"):
            async with SharedAnswers(virtual_clock(), timedelta(seconds=30)):
                raise ValueError("stopped")

    run_virtual(main())


def test_an_answer_to_a_part_is_for_that_part_alone_and_nobody_goes_back_to_an_older_one() -> None:
    async def main() -> None:
        source = Source()
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            assert await get(answers, source, request()) == 1
            await answers.refresh("resource", "q", source.ask, parts=["mine"])
            assert await get(answers, source, request()) == 1
            assert answers.part("q", "yours", request()) is None
            first = request()
            assert answers.part("q", "mine", first) == answers.part("q", "mine", first) == 2
            # Neither the part once more nor the whole, which is older.
            again = request(before=first.used)
            assert answers.part("q", "mine", again) is None
            assert await get(answers, source, again) == 3
            # The whole is newer now.
            assert answers.part("q", "mine", request()) is None

    run_virtual(main())


def test_an_old_answer_to_a_part_is_not_given() -> None:
    async def main() -> None:
        source = Source()
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            await answers.refresh("resource", "q", source.ask, parts=["mine"])
            await asyncio.sleep(PERIOD.total_seconds())
            assert answers.part("q", "mine", request()) is None

    run_virtual(main())


def test_a_part_that_cannot_be_read_leaves_what_is_there() -> None:
    async def main() -> None:
        async with SharedAnswers(virtual_clock(), timedelta(seconds=30)) as answers:
            await answers.refresh("resource", "q", Source().ask, parts=["mine"])
            await answers.refresh("resource", "q", Source(fails=True).ask, parts=["mine"])
            assert answers.part("q", "mine", request()) == 1

    run_virtual(main())
