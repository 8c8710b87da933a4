"""Load curves have the level their description promises, and noise depends on the seed alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.load.curves import (
    DAY,
    HOUR,
    Constant,
    Curve,
    Diurnal,
    Noisy,
    Ramp,
    Spike,
    Step,
    Trace,
    Weekly,
    trace_from_csv,
    unit_hash,
)
from kubetide.errors import InvalidInput

STEPS = Step(((60.0, 10.0), (120.0, 4.0)), initial=1.0)
RAMP = Ramp(low=10, high=30, begin=100, duration=100)
DIURNAL = Diurnal(low=5, high=25, peak_hour=14)
SPIKE = Spike(base=2, peak=50, begin=300, duration=60, every=3600)


@pytest.mark.parametrize(
    ("curve", "elapsed", "expected"),
    [
        pytest.param(Constant(7), 1e6, 7, id="constant"),
        pytest.param(STEPS, 59.9, 1, id="before-the-first-step"),
        pytest.param(STEPS, 60, 10, id="a-step-begins-at-its-second"),
        pytest.param(STEPS, 500, 4, id="the-last-step-holds"),
        pytest.param(RAMP, 0, 10, id="before-the-ramp"),
        pytest.param(RAMP, 150, 20, id="half-way-up"),
        pytest.param(RAMP, 900, 30, id="after-the-ramp"),
        pytest.param(DIURNAL, 14 * HOUR, 25, id="peak-hour"),
        pytest.param(DIURNAL, 2 * HOUR, 5, id="dead-of-night"),
        pytest.param(DIURNAL, 3 * DAY + 14 * HOUR, 25, id="peak-hour-of-the-fourth-day"),
        pytest.param(Weekly(Constant(10)), 2 * DAY, 10, id="wednesday"),
        pytest.param(Weekly(Constant(10)), 6 * DAY, 5, id="sunday"),
        pytest.param(Weekly(Constant(10)), 7 * DAY, 10, id="monday-again"),
        pytest.param(SPIKE, 299, 2, id="before-the-spike"),
        pytest.param(SPIKE, 330, 50, id="in-the-spike"),
        pytest.param(SPIKE, 360, 2, id="after-the-spike"),
        pytest.param(SPIKE, 330 + 3600, 50, id="the-next-spike"),
        pytest.param(Trace(((10, 1), (20, 3))), 15, 2, id="between-two-points"),
        pytest.param(Trace(((10, 1), (20, 3))), 99, 3, id="a-trace-holds-its-end"),
        pytest.param(Trace(((0, 1), (20, 3)), repeat=True), 30, 2, id="a-trace-repeats"),
    ],
)
def test_a_curve_has_its_level(curve: Curve, elapsed: float, expected: float) -> None:
    assert curve.level(elapsed, elapsed) == pytest.approx(expected)


@given(st.integers(0, 2**63), st.floats(0, 1e7))
def test_noise_is_the_same_for_the_same_seed_and_stays_within_its_amount(seed: int, elapsed: float) -> None:
    noisy = Noisy(Constant(100), amount=0.2, seed=seed)
    level = noisy.level(elapsed, 0)
    assert level == noisy.level(elapsed, 0)
    assert 80 <= level <= 120


@given(st.lists(st.integers(), min_size=1, max_size=4))
def test_the_hash_lies_between_zero_and_one(parts: list[int]) -> None:
    assert 0 <= unit_hash(*parts) < 1


def test_two_seeds_make_different_noise() -> None:
    levels = {Noisy(Constant(100), amount=0.2, seed=seed).level(0, 0) for seed in range(50)}
    assert len(levels) == 50


def test_a_trace_is_read_from_csv_with_or_without_a_heading() -> None:
    assert trace_from_csv("seconds,rps\n0,1\n# lunch\n60,5\n") == trace_from_csv("0,1\n60,5\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("", "no points", id="empty"),
        pytest.param("0,1\nsoon,2\n", "line 2", id="not-a-number"),
        pytest.param("0,1\n0,2\n", "does not rise", id="time-stands-still"),
        pytest.param("0,-1\n", "not negative", id="negative"),
        pytest.param("0,nan\n", "finite", id="not-finite"),
    ],
)
def test_a_bad_trace_says_which_line(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        trace_from_csv(text, subject="lunch.csv")
