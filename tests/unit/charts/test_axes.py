"""Ticks on round values, ranges that are never empty, values as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.charts.axes import Axis, Scale, Unit, settle, written

DAY = 86400.0


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        (Unit.CORES, 0.25, "250m"),
        (Unit.CORES, 1.5, "1.5"),
        (Unit.CORES, 0.0, "0"),
        (Unit.BYTES, 476450463, "454Mi"),
        (Unit.BYTES, 1536 * 1024**2, "1.5Gi"),
        (Unit.BYTES, 512, "512"),
        (Unit.RATIO, 0.785, "78.5 %"),
        (Unit.COUNT, 12, "12"),
        (Unit.COUNT, 12_300, "12.3k"),
        (Unit.NUMBER, 1234.0, "1234"),
        (Unit.NUMBER, 0.12345, "0.123"),
        (Unit.MONEY, 2_500_000, "2.5M"),
        (Unit.TIME, 0.0, "1970-01-01 00:00"),
    ],
)
def test_a_value_is_written_as_people_read_it(unit: Unit, value: float, expected: str) -> None:
    assert written(value, unit) == expected


@pytest.mark.parametrize(
    ("scale", "most", "expected"),
    [
        pytest.param(Scale(Unit.CORES, 0.0, 1.0), 5, [0.0, 0.5, 1.0], id="halves"),
        pytest.param(Scale(Unit.COUNT, 0.0, 3.0), 9, [0.0, 1.0, 2.0, 3.0], id="counts-are-whole"),
        pytest.param(Scale(Unit.BYTES, 0.0, 3 * 2**30), 4, [0.0, 2.0**30, 2.0**31, 3 * 2.0**30], id="powers-of-two"),
        pytest.param(Scale(Unit.TIME, 0.0, 2 * DAY), 3, [0.0, DAY, 2 * DAY], id="days"),
        pytest.param(Scale(Unit.TIME, 0.0, 3600.0), 5, [0.0, 900.0, 1800.0, 2700.0, 3600.0], id="quarters"),
    ],
)
def test_ticks_stand_on_round_values(scale: Scale, most: int, expected: list[float]) -> None:
    assert scale.ticks(most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("span", "value", "expected"),
    [
        (300.0, 60.0, "00:01:00"),
        (3600.0, 900.0, "00:15"),
        (3 * DAY, DAY, "02 Jan"),
        (3 * DAY, 1.5 * DAY, "02 Jan 12:00"),
    ],
)
def test_times_are_as_fine_as_the_range_asks(span: float, value: float, expected: str) -> None:
    assert Scale(Unit.TIME, 0.0, span).written(value) == expected


@pytest.mark.parametrize(
    ("axis", "low", "high", "expected"),
    [
        pytest.param(Axis(unit=Unit.CORES), 2.0, 4.0, (0.0, 4.2), id="amounts-start-at-zero"),
        pytest.param(Axis(unit=Unit.CORES, low=1.0, high=3.0), 2.0, 4.0, (1.0, 3.0), id="fixed"),
        pytest.param(Axis(unit=Unit.TIME), 100.0, 200.0, (100.0, 200.0), id="time-as-it-is"),
        pytest.param(Axis(unit=Unit.TIME), 100.0, 100.0, (100.0, 160.0), id="one-moment"),
        pytest.param(Axis(unit=Unit.BYTES), 0.0, 0.0, (0.0, 1048576.0), id="nothing-used"),
        pytest.param(Axis(unit=Unit.COUNT), None, None, (0.0, 1.05), id="no-data"),
    ],
)
def test_the_range_shows_the_data(
    axis: Axis, low: float | None, high: float | None, expected: tuple[float, float]
) -> None:
    scale = settle(axis, low, high)
    assert (scale.low, scale.high) == pytest.approx(expected)


@given(st.sampled_from(Unit), st.floats(0, 1e15), st.floats(1e-6, 1e15), st.integers(1, 40))
def test_ticks_are_few_and_inside(unit: Unit, low: float, span: float, most: int) -> None:
    scale = Scale(unit, low, low + max(span, low * 1e-9))
    ticks = scale.ticks(most)
    assert len(ticks) <= most
    assert all(low - span * 1e-6 <= tick <= scale.high + span * 1e-6 for tick in ticks)
