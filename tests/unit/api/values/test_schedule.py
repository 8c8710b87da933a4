"""Windows: a cron schedule and how long it lasts."""

from datetime import UTC, datetime

import pytest

from kubetide.api.values.schedule import ScheduleError, any_open, parse_windows

NIGHTS = "0 22 * * mon-fri 8h; 0 0 * * sat,sun 24h"


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        pytest.param(NIGHTS, "2026-01-05T21:59", False, id="a-minute-before"),
        pytest.param(NIGHTS, "2026-01-05T22:00", True, id="as-it-opens"),
        pytest.param(NIGHTS, "2026-01-06T05:59", True, id="after-midnight"),
        pytest.param(NIGHTS, "2026-01-06T06:00", False, id="as-it-closes"),
        pytest.param(NIGHTS, "2026-01-10T13:00", True, id="weekend"),
        pytest.param("", "2026-01-10T13:00", False, id="no-window"),
    ],
)
def test_a_window_is_open_from_its_minute_for_as_long_as_it_lasts(text: str, at: str, expected: bool) -> None:
    assert any_open(parse_windows(text), datetime.fromisoformat(at).replace(tzinfo=UTC)) == expected


@pytest.mark.parametrize("text", ["0 2 * * *", "0 2 * * * soon", "0 2 * * * 0s", "2h", "61 2 * * * 1h"])
def test_what_is_no_window_is_named(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_windows(text)
