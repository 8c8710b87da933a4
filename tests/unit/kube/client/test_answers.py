"""The budget of large answers: never exceeded, first come, first served, and nothing is lost to who gives up."""

import asyncio
import ctypes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.kube.client.answers import GIVE_BACK, SMALL, AnswerBudget, current_share, give_back_memory

MIB = 1024 * 1024


async def read(budget: AnswerBudget, size: int, *, at_most: int, seconds: float = 1.0) -> None:
    """Read an answer as a transport does, and decode it for a while."""
    async with budget.answer():
        share = current_share()
        assert share is not None
        await share.cover(size, at_most=at_most)
        share.keep(size)
        await asyncio.sleep(seconds)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 20), st.booleans()), min_size=1, max_size=20
    )
)
def test_the_budget_is_never_exceeded_and_always_comes_back(
    answers: list[tuple[int, int, int, bool]],
) -> None:
    async def main() -> None:
        budget = AnswerBudget(32 * MIB)

        async def one(size: int, begins: int, lasts: int, gives_up: bool) -> None:
            await asyncio.sleep(begins)
            try:
                async with asyncio.timeout(lasts / 2 if gives_up else None):
                    await read(budget, size * MIB, at_most=40 * MIB, seconds=lasts)
            except TimeoutError:
                pass
            assert 0 <= budget.held <= 32 * MIB

        async with asyncio.TaskGroup() as group:
            for answer in answers:
                group.create_task(one(*answer))
        assert budget.held == 0
        # And nobody was forgotten in the queue: the whole of it can be had again.
        async with asyncio.timeout(1):
            assert await budget.take(32 * MIB) == 32 * MIB

    run_virtual(main())


def test_small_answers_pass_while_a_large_one_holds_everything() -> None:
    async def main() -> list[str]:
        budget, order = AnswerBudget(8 * MIB), []

        async def named(name: str, size: int) -> None:
            await read(budget, size, at_most=8 * MIB)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            first = group.create_task(named("first", 8 * MIB))
            await asyncio.sleep(0.1)
            group.create_task(named("second", 8 * MIB))
            for number in range(3):
                group.create_task(named(f"small {number}", SMALL))
            await first
        return order

    first, *small, second = run_virtual(main())
    assert (first, second) == ("first", "second")
    assert sorted(small) == ["small 0", "small 1", "small 2"]


def test_what_was_read_keeps_its_length_only() -> None:
    async def main() -> None:
        budget = AnswerBudget(8 * MIB)
        async with asyncio.TaskGroup() as group:
            group.create_task(read(budget, 2 * MIB, at_most=64 * MIB, seconds=100))
            await asyncio.sleep(1)
            assert budget.held == 2 * MIB, "it reserved all while its length was not known"
            for _ in range(4):
                group.create_task(read(budget, 2 * MIB, at_most=2 * MIB, seconds=100))
            await asyncio.sleep(1)
            assert budget.held == 8 * MIB, "three more, and one that waits"

    run_virtual(main())


@pytest.mark.parametrize(("size", "expected"), [(GIVE_BACK - 1, 0), (GIVE_BACK, 1)])
def test_memory_is_given_back_after_a_large_answer(size: int, expected: int) -> None:
    given_back: list[int] = []

    async def main() -> None:
        budget = AnswerBudget(give_back=lambda: given_back.append(1))
        await read(budget, size, at_most=size)

    run_virtual(main())
    assert len(given_back) == expected


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_free_memory_below_a_block_in_use_goes_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        assert not give_back_memory()
        return
    blocks = [bytes([number % 256]) * 4000 for number in range(20_000)]
    in_use = blocks[::1000]
    del blocks
    before = resident()
    assert give_back_memory()
    assert resident() < before - 40 * MIB, "nearly eighty were free between those in use"
    assert len(in_use) == 20
