"""Numbers as Go reads them."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.quantity import parse_float
from kubetide.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.29", 0.29), ("+1", 1.0), (".5", 0.5), ("1.", 1.0), ("1e-3", 0.001), ("0x1p-2", 0.25), ("-0X.8P1", -1.0)],
)
def test_what_go_reads(text: str, number: float) -> None:
    assert parse_float(text) == number


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_0", "١", "nan", "inf", "1e400", "0x1", "0x1p99999", "1e", ".", "1\n"]
)
def test_what_go_does_not_read_as_a_finite_number(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_float(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_comes_back(number: float) -> None:
    assert parse_float(repr(number)) == number
    assert parse_float(number.hex()) == number


@given(st.text(max_size=12))
def test_any_text_is_a_finite_number_or_refused_by_its_own_error(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert math.isfinite(parse_float(text))
