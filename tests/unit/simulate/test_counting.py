"""Figures of simulated runs, by hand."""

import numpy as np
import pytest

from kubetide.replay.core.figures import Prices
from kubetide.simulate.core.counting import COLUMNS, Run, figures, flaps, time_to_cover

LOOK = 15.0


def looks(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def times(number: int) -> np.ndarray:
    return (np.arange(number) + 1) * LOOK


@pytest.mark.parametrize(
    ("rate", "missed", "expected"),
    [
        pytest.param([10] * 12, [0] * 12, [], id="no-step"),
        pytest.param([10, 10, 30, *[30] * 9], [0] * 12, [0.0], id="covered-at-once"),
        pytest.param([10, 10, 30, *[30] * 9], [0, 0, 20, 20, *[0] * 8], [30.0], id="covered-after-two-looks"),
        pytest.param([10, 10, 30, *[30] * 9], [0, 0, 20, 0, 5, *[0] * 7], [45.0], id="a-relapse-within-the-minute"),
        pytest.param([10, 10, 30, *[30] * 9], [0, 0, *[20] * 10], [135.0], id="never-covered-lasts-to-the-end"),
        pytest.param([0, 0, 30, *[30] * 9], [0] * 12, [0.0], id="from-nothing"),
        pytest.param([10, 12, 14, 16, 18, *[19] * 7], [0] * 12, [], id="a-slow-rise-is-no-step"),
        pytest.param([30, 30, 10, *[10] * 9], [0] * 12, [], id="a-fall-is-no-step"),
    ],
)
def test_time_to_cover_a_step(rate: list[float], missed: list[float], expected: list[float]) -> None:
    assert time_to_cover(times(12), looks(*rate), looks(*missed)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([2, 2, 4, 6, 6], 0, id="one-direction"),
        pytest.param([2, 4, 2, 4], 2, id="up-down-up"),
        pytest.param([float("nan"), 2, 4, 2, float("nan"), 4], 1, id="what-nobody-wants-does-not-change"),
        pytest.param([2, 4, *[4] * 41, 2], 0, id="down-after-more-than-ten-minutes"),
    ],
)
def test_flaps_take_back_what_was_just_decided(wanted: list[float], expected: int) -> None:
    assert flaps(times(len(wanted)), looks(*wanted)) == expected


def run_of(**columns: list[float]) -> Run:
    number = len(next(iter(columns.values())))
    series = {name: looks(*columns.get(name, [0.0] * number)) for name in COLUMNS}
    return Run(policy="p", seed=1, start=0.0, series={"ns/w": {**series, "time": times(number)}}, evictions=2)


def test_shares_hours_and_money_are_weighed_by_time() -> None:
    run = run_of(
        rate=[10] * 240, missed=[1] * 240, pods=[3] * 240, asked_cores=[2] * 240, asked_gib=[4] * 240, wanted=[3] * 240
    )
    found = figures(run, Prices(core=0.5, gib=0.25))
    assert found["slo_missed"] == pytest.approx(0.1)
    assert found["pod_hours"] == pytest.approx(3.0)
    assert found["money"] == pytest.approx(0.5 * 2 + 0.25 * 4)
    assert found["evictions"] == 2
    assert np.isnan(found["time_to_cover"])


def test_without_load_nothing_is_missed_and_nothing_is_claimed() -> None:
    found = figures(run_of(pods=[1, 1]), Prices())
    assert np.isnan(found["slo_missed"])
    assert "money" not in found
