"""Forecasters earn their weight, and errors decide how much to keep in reserve."""

import json

import numpy as np
import pytest

from kubetide.errors import InvalidInput
from kubetide.stats.forecast import FORECASTERS, Ensemble
from kubetide.stats.forecast_errors import RATIOS, STATES, ForecastErrors

STEP = 15


def ensemble(lead: int = 2) -> Ensemble:
    return Ensemble(step_seconds=STEP, lead_steps=lead)


def fed(values: list[float], lead: int = 2) -> Ensemble:
    made = ensemble(lead)
    for which, value in enumerate(values):
        made.update(which * STEP, value)
    return made


def test_a_flat_series_is_forecast_as_it_is() -> None:
    assert fed([4.0] * 100).update(100 * STEP, 4.0).value == pytest.approx(4.0)


def test_the_first_value_is_forecast_to_stay() -> None:
    forecast = ensemble().update(0, 7.0)
    assert forecast.value == 7.0
    assert forecast.weights == {"last": 1.0}


def test_the_trend_wins_on_a_ramp() -> None:
    forecast = fed([float(n) for n in range(200)]).update(200 * STEP, 200.0)
    assert max(forecast.weights, key=lambda name: forecast.weights[name]) == "trend"
    assert forecast.value == pytest.approx(202.0, abs=0.1)


def test_the_mean_wins_on_noise_around_a_level() -> None:
    forecast = fed([10.0 + (n * 7919 % 13 - 6) for n in range(600)]).update(600 * STEP, 16.0)
    assert forecast.weights["mean"] > forecast.weights["last"]
    assert forecast.value < 15


def test_a_jump_at_the_same_minute_of_every_hour_is_seen_coming() -> None:
    hours = [20.0 if which % 240 >= 120 else 5.0 for which in range(6 * 240)]
    before = [*hours, *[5.0] * 119]
    forecast = fed(before).update(len(before) * STEP, 5.0)
    assert forecast.weights["hour"] > 0.9
    assert forecast.value > 15


@pytest.mark.parametrize("lead", [1, 2, 20])
def test_forecasts_are_never_negative(lead: int) -> None:
    made = ensemble(lead)
    for which in range(500):
        assert made.update(which * STEP, float(max(0, 50 - which))).value >= 0


def test_a_saved_ensemble_weighs_its_forecasters_alike() -> None:
    made = fed([float(n % 50) for n in range(600)])
    saved = json.loads(json.dumps(made.saved()))
    again = ensemble()
    again.restore(saved)
    assert again.errors == pytest.approx(made.errors, abs=1e-5)
    assert again.counts == made.counts


@pytest.mark.parametrize(
    ("saved", "names"),
    [
        pytest.param({}, "errors", id="nothing"),
        pytest.param({"errors": [1.0], "counts": [1]}, "errors", id="too-short"),
        pytest.param({"errors": ["a"] * 6, "counts": [1] * 6}, "errors", id="text"),
        pytest.param({"errors": [float("nan")] * 6, "counts": [1] * 6}, "errors", id="not-a-number"),
        pytest.param({"errors": [1.0] * 6, "counts": [-1] * 6}, "counts", id="negative"),
    ],
)
def test_what_cannot_be_restored_is_named(saved: dict[str, object], names: str) -> None:
    assert len(FORECASTERS) == 6
    with pytest.raises(InvalidInput, match=names):
        ensemble().restore(saved)


def errors_of(*ratios: float, times: int = 400) -> ForecastErrors:
    errors = ForecastErrors()
    for _ in range(times):
        for ratio in ratios:
            errors.learn(9.0, ratio * 10 - 1, state=errors.state(9.0))
    return errors


def level(errors: ForecastErrors, forecast: float, price: float) -> int:
    return int(errors.levels(forecast, np.array([price]), slack=1 / 15, state=errors.state(9.0))[0])


def test_right_forecasts_need_no_reserve() -> None:
    assert level(errors_of(1.0), 20.0, 20.0) <= 21


def test_wrong_forecasts_need_one_where_lateness_is_dear() -> None:
    errors = errors_of(1.0, 1.0, 1.5, 1.0, 1.5, 1.5, 1.0, 1.0, 1.0, 1.5, 1.0)
    assert level(errors, 20.0, 20.0) >= 29
    assert level(errors, 20.0, 0.5) <= 22


def test_a_higher_price_never_lowers_the_level() -> None:
    errors = errors_of(0.8, 1.0, 1.1, 1.3, 2.0, times=50)
    levels = errors.levels(12.0, np.array([0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 500.0]), slack=1 / 15, state=0)
    assert list(levels) == sorted(levels)


def test_a_surprise_stirs_and_calm_returns() -> None:
    errors = errors_of(1.0)
    errors.learn(10.0, 30.0, state=0)
    assert errors.state(10.0) >= 3
    for _ in range(200):
        errors.learn(10.0, 10.0, state=errors.state(10.0))
    assert errors.state(10.0) == 0


@pytest.mark.parametrize(("value", "state"), [(9.5, 0), (11.0, 1), (14.0, 2)])
def test_a_rise_and_a_jump_are_states_of_their_own(value: float, state: int) -> None:
    assert errors_of(1.0).state(value) == state


def test_what_follows_a_jump_does_not_widen_the_reserve_at_rest() -> None:
    errors = ForecastErrors()
    for _ in range(300):
        for _ in range(20):
            errors.learn(9.0, 9.0, state=0)
        errors.learn(9.0, 29.0, state=2)
    prices = np.array([8.0])
    at_rest, jumping = (float(errors.levels(9.0, prices, slack=1 / 15, state=state)[0]) for state in (0, 2))
    assert at_rest <= 10
    assert jumping >= 27


def test_a_level_is_at_least_one_and_any_ratio_has_a_bucket() -> None:
    errors = ForecastErrors()
    errors.learn(0.0, 1e9, state=0)
    errors.learn(1e9, 0.0, state=5)
    assert level(errors, 0.0, 0.1) == 1
    assert list(RATIOS) == sorted(RATIOS)


def test_saved_errors_give_the_same_levels() -> None:
    errors = errors_of(0.9, 1.0, 1.05, 1.4)
    again = ForecastErrors()
    again.restore(json.loads(json.dumps(errors.saved())))
    for price in (1.0, 10.0, 30.0):
        assert level(again, 17.0, price) == level(errors, 17.0, price)
    assert again.state(9.0) == errors.state(9.0)


@pytest.mark.parametrize(
    "ratios",
    [
        pytest.param(None, id="missing"),
        pytest.param([[], []], id="two"),
        pytest.param([[130, 1.0], *[[]] * STATES], id="no-such-bucket"),
        pytest.param([[1], *[[]] * STATES], id="half-a-pair"),
        pytest.param([5, *[[]] * STATES], id="no-list"),
    ],
)
def test_errors_that_cannot_be_restored_are_named(ratios: object) -> None:
    with pytest.raises(InvalidInput, match="ratios"):
        ForecastErrors().restore({"moments": [1, 0.1, 0.1], "ratios": ratios})
