"""Powers and the cosine: as near to the true value as a float can be, and exact where it is one."""

import math
from decimal import Context, Decimal

import numpy as np
import pytest

from kubetide.stats.powers import cosine_of_turns, exponential_of, power, power_of_two

PRECISE = Context(prec=60)


def ulps(got: float, true: Decimal) -> Decimal:
    return abs(Decimal(got) - true) / Decimal(math.ulp(got))


def test_powers_of_two_are_within_a_hair_of_the_nearest_float() -> None:
    exponents = np.concatenate([np.linspace(-60.0, 100.0, 1499), np.arange(-20, 20) / 2048 + 0.25])
    log2 = PRECISE.ln(Decimal(2))
    for exponent, got in zip(exponents.tolist(), power_of_two(exponents).tolist(), strict=True):
        assert ulps(got, PRECISE.exp(PRECISE.multiply(Decimal(exponent), log2))) < Decimal("0.502")


def test_whole_powers_of_two_are_exact_down_to_the_smallest_float() -> None:
    whole = np.arange(-1074, 1024)
    assert power_of_two(whole).tolist() == [math.ldexp(1.0, exponent) for exponent in whole.tolist()]


def test_powers_of_two_vanish_where_floats_end() -> None:
    assert power_of_two([-1e9, -math.inf, -1076.0]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("exponent", [0.0, -1e-12, -0.1, -1.0, -7.3, -360.0])
def test_exponentials_fade_as_they_should(exponent: float) -> None:
    true = PRECISE.exp(Decimal(exponent))
    assert ulps(float(exponential_of(exponent)), true) <= 2 + 2 * abs(Decimal(exponent))


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        pytest.param(0.3, 0.0, 1.0, id="nothing"),
        pytest.param(0.0, 0.0, 1.0, id="nothing-of-nothing"),
        pytest.param(0.0, 1.5, 0.0, id="of-nothing"),
        pytest.param(0.3, 1.0, 0.3, id="itself"),
        pytest.param(0.3, 2.0, 0.09, id="its-square"),
        pytest.param(0.25, 1.5, 0.125, id="with-a-root"),
        pytest.param(0.5, 0.1, 0.9330329915368074, id="a-fraction-without-end"),
    ],
)
def test_powers(base: float, exponent: float, expected: float) -> None:
    assert power(base, exponent) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("base", "exponent"), [(-1.0, 2.0), (1.0, -1.0), (2.0, math.inf), (math.nan, 1.0)])
def test_powers_that_are_not_needed_are_refused(base: float, exponent: float) -> None:
    with pytest.raises(ValueError, match="not negative"):
        power(base, exponent)


def test_the_cosine_of_turns() -> None:
    exact = {0.0: 1.0, 0.25: 0.0, 0.5: -1.0, 0.75: 0.0, 1.0: 1.0, -0.5: -1.0, 7.0: 1.0}
    assert {turns: cosine_of_turns(turns) for turns in exact} == exact
    for turns in np.linspace(-1.5, 1.5, 601).tolist():
        assert cosine_of_turns(turns) == pytest.approx(math.cos(2 * math.pi * turns), abs=2e-15)
