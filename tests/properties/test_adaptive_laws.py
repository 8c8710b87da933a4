"""Laws of adaptive sizes: restarts change nothing, units do not matter, more use never means less memory."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.sizes import Adaptive, Sizes

SIZE = 23
seeds = st.integers(0, 2**32 - 1)


def story(seed: int, hours: int) -> tuple[Floats, Floats]:
    """Some hours of CPU and memory with levels, jumps and gaps: hours by samples by containers."""
    rng = np.random.default_rng(seed)
    level = 0.1 + rng.random(SIZE) * 4.0
    walk = np.cumsum(rng.normal(0.0, 0.1, (hours, 1, SIZE)), axis=0)
    cpu = np.maximum(level * (1.0 + 0.3 * rng.random((hours, 6, SIZE)) + walk), 0.01)
    memory = np.floor(cpu * 2.0**28) + 2.0**24
    gap = rng.random((hours, 1, SIZE)) < 0.05
    return np.where(gap, np.nan, cpu), np.where(gap, np.nan, memory)


def percentiles(cpu: Floats) -> Floats:
    """Stand-ins for those of the histograms."""
    return np.nanquantile(cpu.reshape(-1, SIZE), PERCENTILES, axis=0)


def feed(adaptive: Adaptive, cpu: Floats, memory: Floats, start: int, end: int) -> list[Sizes]:
    made = []
    plain = percentiles(cpu)
    for hour in range(start, end):
        adaptive.observe(cpu=cpu[hour], memory=memory[hour])
        made.append(adaptive.decide(plain))
    return made


def same(one: Sizes, other: Sizes) -> bool:
    limits = (one.memory_limit is None) == (other.memory_limit is None)
    if one.memory_limit is not None and other.memory_limit is not None:
        limits = bool((one.memory_limit == other.memory_limit).all())
    return limits and bool((one.cpu == other.cpu).all() and (one.memory == other.memory).all())


@settings(max_examples=6, deadline=None)
@given(seeds, st.integers(1, 40), st.booleans())
def test_a_restart_changes_no_decision(seed: int, cut: int, limit_apart: bool) -> None:
    cpu, memory = story(seed, cut + 25)
    first = Adaptive(SIZE, limit_apart=limit_apart)
    feed(first, cpu, memory, 0, cut)
    columns = [first.save(column) for column in range(SIZE)]
    fleet = first.save_fleet()
    second = Adaptive(SIZE, limit_apart=limit_apart)
    second.load_fleet(fleet)
    for column, form in enumerate(columns):
        second.load(column, form)
    went_on = feed(first, cpu, memory, cut, cut + 25)
    restarted = feed(second, cpu, memory, cut, cut + 25)
    assert all(same(one, other) for one, other in zip(went_on, restarted, strict=True))


@settings(max_examples=6, deadline=None)
@given(seeds, st.booleans())
def test_what_is_remembered_does_not_grow(seed: int, limit_apart: bool) -> None:
    cpu, memory = story(seed, 72)
    adaptive = Adaptive(SIZE, limit_apart=limit_apart)
    feed(adaptive, cpu, memory, 0, 2)
    early = adaptive.save(0).size
    feed(adaptive, cpu, memory, 2, 72)
    assert early == adaptive.save(0).size < 160


@settings(max_examples=6, deadline=None)
@given(seeds, st.booleans(), st.integers(1, 5))
def test_sizes_scale_with_usage(seed: int, limit_apart: bool, doublings: int) -> None:
    # Powers of two keep every rounding as it was; usage stays far above the floors.
    factor = 2.0**doublings
    cpu, memory = story(seed, 50)
    cpu, memory = np.maximum(cpu, 0.1), memory * 64.0
    plain = feed(Adaptive(SIZE, limit_apart=limit_apart), cpu, memory, 0, 50)[-1]
    scaled = feed(Adaptive(SIZE, limit_apart=limit_apart), cpu * factor, memory * factor, 0, 50)[-1]
    assert scaled.memory == pytest.approx(plain.memory * factor, rel=1e-6)
    assert scaled.cpu == pytest.approx(plain.cpu * factor, rel=1e-6)


@settings(max_examples=6, deadline=None)
@given(seeds)
def test_one_number_always_covers_the_last_hours(seed: int) -> None:
    cpu, memory = story(seed, 40)
    adaptive = Adaptive(SIZE, limit_apart=False)
    sizes = feed(adaptive, cpu, memory, 0, 40)[-1]
    # The first decision of a young container covers what it has used; a later one may stay where a move saves little.
    first = feed(Adaptive(SIZE, limit_apart=False), cpu, memory, 0, 1)[0]
    assert (first.memory >= np.nan_to_num(np.fmax.reduce(memory[0], axis=0))).all()
    assert np.isfinite(sizes.memory).all()
    assert (sizes.memory > 0).all()


@settings(max_examples=6, deadline=None)
@given(seeds)
def test_limits_are_never_below_requests(seed: int) -> None:
    cpu, memory = story(seed, 60)
    for sizes in feed(Adaptive(SIZE, limit_apart=True), cpu, memory, 0, 60):
        assert sizes.memory_limit is not None
        assert (sizes.memory_limit >= sizes.memory).all()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(lambda numbers: numbers[1:], "numbers instead of", id="too-short"),
        pytest.param(lambda numbers: np.where(numbers == 0.0, np.inf, numbers), "non-finite", id="infinite"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_as_a_whole(broken: Callable[[Floats], Floats], message: str) -> None:
    adaptive = Adaptive(2, limit_apart=True)
    before = adaptive.save(0)
    with pytest.raises(InvalidInput, match="adaptive state.*" + message):
        adaptive.load(0, broken(before))
    with pytest.raises(InvalidInput, match="adaptive state.*" + message):
        adaptive.load_fleet(broken(adaptive.save_fleet()))
    assert np.array_equal(adaptive.save(0), before, equal_nan=True)


@pytest.mark.parametrize("bad", [-1.0, float("inf")])
def test_samples_that_cannot_be_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="memory"):
        Adaptive(1, limit_apart=True).observe(cpu=None, memory=np.array([[bad]]))
