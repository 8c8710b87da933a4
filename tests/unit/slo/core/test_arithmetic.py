"""Rounding is part of the protocol, and no amount is too large."""

import pytest

from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.slo.core.arithmetic import differs, divide, scale_milli, scale_value

HUGE = parse_quantity("1e400")


def test_amounts_beyond_any_machine_are_only_large() -> None:
    assert scale_milli(HUGE, 5.0) > parse_quantity("1e250")
    assert scale_value(-HUGE, 5.0) < parse_quantity("-1e250")
    assert divide({"cpu": HUGE}, 2)["cpu"] > parse_quantity("1e250")
    assert differs({"cpu": parse_quantity("1")}, {"cpu": HUGE}, "cpu", 0.1)


@pytest.mark.parametrize(
    ("text", "factor", "milli", "value"),
    [("10", 0.35, "3500m", "3"), ("1500m", 0.5, "750m", "1"), ("-1500m", 0.5, "-750m", "-1"), ("0.1m", 2.0, "2m", "2")],
)
def test_scaling_cuts_off(text: str, factor: float, milli: str, value: str) -> None:
    assert scale_milli(parse_quantity(text), factor) == parse_quantity(milli)
    assert scale_value(parse_quantity(text), factor) == parse_quantity(value)


def test_dividing_rounds_up_to_a_milli_unit() -> None:
    assert divide({"memory": parse_quantity("10")}, 3) == {"memory": Quantity.of_milli(3334)}
    assert divide({"memory": parse_quantity("10")}, 0) == {"memory": parse_quantity("10")}
