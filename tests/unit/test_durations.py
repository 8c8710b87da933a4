"""Durations in Go's notation."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.durations import format_duration, parse_duration
from kubetide.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("1m0s", 60),
        ("15.2s", 15.2),
        ("100ms", 0.1),
        ("0", 0),
        ("-1m", -60),
        (".5s", 0.5),
        ("1h", 3600),
    ],
)
def test_texts_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "1d", "s", "1 s", "1m 30s", "1e3s", "--1s", "9" * 30 + "h", "2562048h"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "1h30m0s"), (90, "1m30s"), (1.5, "1.5s"), (0.1, "100ms"), (0, "0s"), (-60, "-1m0s")]
)
def test_durations_print_as_go_prints_them(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(min_value=timedelta(days=-100), max_value=timedelta(days=100)))
def test_what_is_printed_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
