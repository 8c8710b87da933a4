"""The pace of a showing, and the keys that change it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.cli.demo.pace import FASTEST, SLOWEST, Pace, keys_in


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param("", Pace(240), id="nothing-pressed"),
        pytest.param("+", Pace(480), id="faster-doubles"),
        pytest.param("-", Pace(120), id="slower-halves"),
        pytest.param("++-", Pace(480), id="one-back"),
        pytest.param(" ", Pace(240, paused=True), id="space-stops-time"),
        pytest.param("  ", Pace(240), id="space-again-goes-on"),
        pytest.param(" +", Pace(480, paused=True), id="a-speed-chosen-while-paused-is-kept-for-later"),
        pytest.param("q", Pace(240, ended=True), id="the-end"),
        pytest.param("x7", Pace(240), id="keys-without-a-meaning"),
    ],
)
def test_a_key_changes_the_pace(keys: str, expected: Pace) -> None:
    pace = Pace(240)
    for key in keys:
        pace = pace.press(key)
    assert pace == expected


def test_time_stands_still_while_paused() -> None:
    assert Pace(240).effective == 240
    assert Pace(240, paused=True).effective == 0


@given(st.floats(0.001, 1e9), st.lists(st.sampled_from("+- ")))
def test_keys_never_lead_further_out_of_bounds_than_the_start(speed: float, keys: list[str]) -> None:
    pace = Pace(speed)
    for key in keys:
        pace = pace.press(key)
    assert min(speed, SLOWEST / 2) <= pace.speed <= max(speed, FASTEST * 2)


@pytest.mark.parametrize(
    ("pace", "told"),
    [
        pytest.param(Pace(240), "240x   + faster   - slower   space pause   q end", id="running"),
        pytest.param(Pace(7.5, paused=True), "paused at 7.5x   + faster   - slower   space go on   q end", id="paused"),
    ],
)
def test_the_hint_says_the_speed_and_the_keys_in_one_line(pace: Pace, told: str) -> None:
    assert pace.hint() == told


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        pytest.param(b"+- q", ["+", "-", " ", "q"], id="several-at-once"),
        pytest.param(b"=_Q", ["+", "-", "q"], id="with-and-without-shift"),
        pytest.param(b"\x1b[A\x1b[B\x1bOA", ["+", "-", "+"], id="arrows"),
        pytest.param(b"\x1b[1;5A\x1b[3~+", ["+"], id="other-sequences-are-no-keys"),
        pytest.param(b"\x1b", [], id="escape-alone"),
        pytest.param(b"\x1b[", [], id="a-sequence-cut-short"),
        pytest.param("äq".encode(), ["q"], id="not-ascii"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_keys_are_found_in_what_a_terminal_sends(data: bytes, keys: list[str]) -> None:
    assert list(keys_in(data)) == keys


@given(st.binary(max_size=40))
def test_no_bytes_confuse_the_reading_of_keys(data: bytes) -> None:
    assert set(keys_in(data)) <= {*"+- q\tls123", "\x1b[Z"}
