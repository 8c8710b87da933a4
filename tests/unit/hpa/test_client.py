"""Shared answers: asked once for all, never given twice to the same one."""

import asyncio
from collections.abc import Hashable
from datetime import timedelta

import pytest

from kubetide.embedded.sim.loop import run_virtual, virtual_clock
from kubetide.hpa.client import SharedAnswers
from kubetide.hpa.queries import Asker

PERIOD = timedelta(seconds=15)


class Source:
    """Answers with a number that grows, after a while."""

    def __init__(self, delay: float = 0.0, fails: bool = False) -> None:
        self.asked = 0
        self._delay = delay
        self._fails = fails

    async def ask(self) -> int:
        self.asked += 1
        answer = self.asked
        await asyncio.sleep(self._delay)
        if self._fails:
            raise ValueError("no answer")
        return answer


def asker(before: dict[Hashable, int] | None = None) -> Asker:
    return Asker(max_age=PERIOD, before=before or {})


async def get(answers: SharedAnswers, source: Source, who: Asker, question: str = "q") -> int:
    return await answers.get(question, source.ask, asker=who, shared=lambda: None)


def test_many_share_one_answer_while_it_is_young() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source(delay=1.0)
        found = await asyncio.gather(*(get(answers, source, asker()) for _ in range(50)))
        assert set(found) == {1}
        await asyncio.sleep(13)
        assert await get(answers, source, asker()) == 1
        await asyncio.sleep(2)
        assert await get(answers, source, asker()) == 2
        assert source.asked == 2

    run_virtual(main())


def test_nobody_is_given_the_same_answer_in_two_turns() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source()
        first = asker()
        assert await get(answers, source, first) == 1
        assert await get(answers, source, first) == 1
        assert await get(answers, source, asker(before=first.used)) == 2
        assert await get(answers, source, asker()) == 2

    run_virtual(main())


def test_failures_are_shared_like_answers() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source(fails=True)
        for _ in range(10):
            with pytest.raises(ValueError, match="no answer"):
                await get(answers, source, asker())
        assert source.asked == 1

    run_virtual(main())


def test_who_hangs_is_given_up() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source(delay=3600)
        with pytest.raises(TimeoutError):
            await get(answers, source, asker())

    run_virtual(main())


def test_one_who_goes_away_does_not_take_the_answer_with_him() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source(delay=5)
        loop = asyncio.get_running_loop()
        leaving = loop.create_task(get(answers, source, asker()))
        staying = loop.create_task(get(answers, source, asker()))
        await asyncio.sleep(1)
        leaving.cancel()
        assert await staying == 1
        assert source.asked == 1

    run_virtual(main())


def test_old_answers_are_dropped() -> None:
    async def main() -> None:
        answers, source = SharedAnswers(virtual_clock(), timedelta(seconds=30)), Source()
        for number in range(100):
            await get(answers, source, asker(), f"question {number}")
            await asyncio.sleep(10)
        assert len(answers._answers) < 10

    run_virtual(main())
