"""Centres, and bands above them that are as wide as what came was off."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from kubetide.errors import InvalidInput
from kubetide.stats.forecast_bands import CENTRES, WIDTHS, Bands


def scattered(count: int, middle: float, by: float) -> list[float]:
    return [middle + by * (which * 7919 % 13 - 6) / 6 for which in range(count)]


def fed(values: list[float], lead: int = 2) -> tuple[Bands, NDArray[np.float64]]:
    bands = Bands(lead_steps=lead)
    for value in values:
        levels = bands.update(value, value)
    return bands, levels.reshape(len(CENTRES), len(WIDTHS))


def test_a_flat_series_leaves_no_width() -> None:
    _, levels = fed([10.0] * 2000)
    assert levels == pytest.approx(np.full(levels.shape, 10.0), abs=0.01)


def test_bands_are_ordered_and_as_wide_as_the_noise() -> None:
    _, calm = fed(scattered(1500, 10.0, 1.0))
    _, wild = fed(scattered(1500, 10.0, 4.0))
    assert (np.diff(wild, axis=1) > 0).all()
    slowest = CENTRES.index("mean of 100 steps")
    assert wild[slowest] - 10.0 == pytest.approx(4 * (calm[slowest] - 10.0), rel=0.1)


def test_a_mean_is_steadier_than_the_last_value() -> None:
    values = scattered(1500, 10.0, 4.0)
    bands, _ = fed(values)
    assert bands.widths[CENTRES.index("mean of 100 steps")] < bands.widths[CENTRES.index("forecast")]


def test_the_first_values_have_a_band_too() -> None:
    _, levels = fed([4.0])
    assert (levels > 4.0).all()


def test_a_new_level_is_followed_sooner_by_shorter_means() -> None:
    _, levels = fed([5.0] * 600 + [15.0] * 20)
    centres = levels[:, 0] - (levels[:, 1] - levels[:, 0]) * WIDTHS[0] / (WIDTHS[1] - WIDTHS[0])
    assert list(centres[:3]) == sorted(centres[:3], reverse=True)
    assert centres[3] == pytest.approx(15.0)


def test_an_idle_series_counts_nothing_that_is_not_finite() -> None:
    _, levels = fed([0.0] * 300)
    assert np.isfinite(levels).all()


def test_what_was_saved_is_as_wide() -> None:
    bands, _ = fed(scattered(500, 10.0, 3.0))
    again = Bands(lead_steps=2)
    again.restore(json.loads(json.dumps(bands.saved())))
    assert again.widths == pytest.approx(bands.widths, abs=1e-4)
    assert again.count == bands.count


@pytest.mark.parametrize(
    ("saved", "names"),
    [
        pytest.param({}, "widths", id="nothing"),
        pytest.param({"widths": [1.0] * 3, "count": [4]}, "widths", id="too-few"),
        pytest.param({"widths": [1.0] * 4}, "count", id="no-count"),
        pytest.param({"widths": [-1.0] * 4, "count": [4]}, "widths", id="negative"),
    ],
)
def test_what_cannot_be_restored_is_named(saved: dict[str, object], names: str) -> None:
    with pytest.raises(InvalidInput, match=names):
        Bands(lead_steps=2).restore(saved)
