from datetime import timedelta

import numpy as np
import pytest

from kubetide.vpa.recommender.core.estimator import (
    Estimation,
    amount,
    confidence,
    estimate,
    factor,
    floors,
    round_up,
    with_margin,
)

DAY = 86_400_000_000
MIB = 1024 * 1024


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def estimated(cores: float, *, count: int = 1440, age: int = DAY, containers: int = 1) -> dict[str, int]:
    values = np.array([[cores], [cores], [cores]])
    result = estimate(
        "cpu",
        values,
        first=ints(0),
        last=ints(age),
        count=ints(count),
        margin=np.array([0.15]),
        containers=ints(containers),
        estimation=Estimation(),
    )
    return {bound: int(found[0]) for bound, found in result.items()}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(-3.0, 0, id="negative-is-nothing"),
        pytest.param(1.999, 1, id="truncated"),
        pytest.param(2e14, 10**14, id="capped"),
        pytest.param(float("inf"), 10**14, id="infinite-is-the-cap"),
        pytest.param(float("nan"), 0, id="no-number-is-nothing"),
    ],
)
def test_floats_become_amounts(value: float, expected: int) -> None:
    assert amount(np.array([value])).tolist() == [expected]


def test_the_margin_is_truncated_before_it_is_added() -> None:
    # trunc(1.15 · 13) would be 14 as well, but 13 + trunc(1.95) is 14 and 27 + trunc(4.05) is 31.
    assert with_margin(ints(13, 27, 100), np.array([0.15])).tolist() == [14, 31, 115]


def test_a_full_day_of_minutely_samples_doubles_the_upper_bound() -> None:
    found = estimated(1.0)
    assert found["target"] == 1150
    assert found["upper"] == 2300
    assert found["lower"] == 1147


@pytest.mark.parametrize(
    ("count", "age"),
    [pytest.param(1, 0, id="one-sample"), pytest.param(0, 0, id="memory-samples-only")],
)
def test_without_confidence_the_bounds_are_endless(count: int, age: int) -> None:
    found = estimated(1.0, count=count, age=age)
    assert found["upper"] == 10**14
    assert found["lower"] == 25


def test_without_any_sample_all_bounds_are_the_minimum() -> None:
    assert estimated(0.0, count=0, age=0) == {"target": 25, "lower": 25, "upper": 25}


def test_confidence_is_the_smaller_of_age_and_count() -> None:
    day = timedelta(days=1)
    assert confidence(ints(0), ints(DAY), ints(720), day).tolist() == [0.5]
    assert confidence(ints(0), ints(DAY // 4), ints(5000), day).tolist() == [0.25]
    assert confidence(ints(0), ints(DAY), ints(5000), 2 * day).tolist() == [0.5]


def test_factors_approach_one_with_confidence() -> None:
    trust = np.array([0.5, 1.0, 7.0])
    assert factor("upper", trust).tolist() == pytest.approx([3.0, 2.0, 1.142857], rel=1e-5)
    assert factor("lower", trust).tolist() == pytest.approx([0.996, 0.998, 0.9997], rel=1e-3)
    assert factor("target", trust).tolist() == [1.0, 1.0, 1.0]


def test_the_pod_minimum_is_shared_by_its_containers() -> None:
    assert floors("cpu", Estimation(), ints(1, 2, 3)).tolist() == [25, 12, 8]
    assert floors("memory", Estimation(), ints(2)).tolist() == [125 * MIB]


@pytest.mark.parametrize(
    ("multiple", "expected"),
    [
        pytest.param(50, [50, 50, 100], id="up-to-a-multiple"),
        pytest.param(1, [1, 50, 51], id="one-is-off"),
        pytest.param(0, [1, 50, 51], id="zero-is-off"),
        pytest.param(-7, [1, 50, 51], id="negative-is-off"),
    ],
)
def test_rounding_goes_up(multiple: int, expected: list[int]) -> None:
    assert round_up(ints(1, 50, 51), multiple).tolist() == expected


def test_every_step_is_truncated_on_its_own() -> None:
    # 0.0379 cores are 37 m, with a margin of trunc(5.55) they are 42 m, and a confidence of 0.7 makes trunc(102) m.
    # Truncated once at the end the bound would be trunc(37.9 · 1.15 · 2.43) = 105 m.
    found = estimated(0.0379, age=DAY * 7 // 10)
    assert found["target"] == 42
    assert found["upper"] == 102
