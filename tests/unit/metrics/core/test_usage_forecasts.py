"""Forecasts of usage: begun by a question, answered once enough is known, forgotten when nobody asks."""

from datetime import timedelta

import pytest

from kubetide.errors import InvalidInput
from kubetide.metrics.core.scaler_triggers import FORECAST, read_trigger
from kubetide.metrics.core.usage_forecasts import MOST, WARM_UP, ForecastKey, UsageForecasts

KEY = ForecastKey("shop", "app=web")


def after(steps: int, *, rise: float = 0.0, start: float = 0.0) -> UsageForecasts:
    """Return forecasts that have followed a series for so many steps."""
    made = UsageForecasts()
    made.ask(KEY, now=start)
    for step in range(1, steps + 1):
        made.learn(KEY, 2.0 + rise * step, now=start + 15 * step)
    return made


def test_a_forecast_is_given_once_enough_is_known() -> None:
    assert after(WARM_UP - 1).ask(KEY, now=300) is None
    assert after(WARM_UP).ask(KEY, now=300) == pytest.approx(2.0)


def test_a_ramp_is_forecast_ahead_of_itself() -> None:
    steps = 400
    found = after(steps, rise=0.01).ask(KEY, now=15.0 * steps)
    now = 2.0 + 0.01 * steps
    assert found is not None
    # Twenty steps of 15 s are five minutes.
    assert now + 0.1 < found <= now + 0.21


def test_what_is_followed_no_more_is_missing_and_begins_anew() -> None:
    made = after(WARM_UP)
    assert made.ask(KEY, now=300 + 15 * 21) is None
    made.learn(KEY, 2.0, now=300 + 15 * 22)
    assert made.ask(KEY, now=300 + 15 * 22) is None


def test_a_forecast_that_nobody_asks_for_is_forgotten_and_their_number_is_bounded() -> None:
    made = after(1)
    assert made.wanted(now=3599) == [KEY]
    assert made.wanted(now=3601) == []
    for number in range(MOST + 10):
        made.ask(ForecastKey("shop", f"app=web-{number}"), now=4000)
    assert len(made) == MOST


def test_a_second_value_in_one_step_changes_nothing() -> None:
    made = after(WARM_UP)
    made.learn(KEY, 99.0, now=15 * WARM_UP + 5)
    assert made.ask(KEY, now=300) == pytest.approx(2.0)


def test_a_trigger_of_keda_asks_for_the_sum_some_minutes_ahead() -> None:
    trigger = read_trigger({"signal": FORECAST, "target": "0.5", "lead": "10m", "selector": "app=web"})
    assert (trigger.aggregate, trigger.lead, trigger.metric) == (
        "sum",
        timedelta(minutes=10),
        "kubetide-cpu-forecast-cores",
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [pytest.param({"aggregate": "max"}, "aggregate", id="aggregate"), pytest.param({"lead": "2h"}, "lead", id="lead")],
)
def test_a_trigger_that_cannot_be_used_names_its_field(given: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        read_trigger({"signal": FORECAST, "target": "0.5", **given})
