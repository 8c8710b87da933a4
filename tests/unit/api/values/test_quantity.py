"""Quantities: exact, as Kubernetes reads and writes them."""

from collections.abc import Callable

import pytest

from kubetide.api.values.quantity import (
    Quantity,
    cpu_millis,
    memory_bytes,
    milli_text,
    parse_quantity,
    plain_number,
    quantity_float,
    readable,
    readable_bytes,
)
from kubetide.errors import QuantityError


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        pytest.param("1", 1000, 1, id="whole"),
        pytest.param("500m", 500, 1, id="milli-rounds-up-as-value"),
        pytest.param("1n", 1, 1, id="nano-rounds-up"),
        pytest.param("12345678n", 13, 1, id="usage-sample"),
        pytest.param("-1n", -1, -1, id="rounds-away-from-zero"),
        pytest.param("128Mi", 134217728000, 134217728, id="binary"),
        pytest.param("1.5Gi", 1610612736000, 1610612736, id="fraction-of-binary"),
        pytest.param("1e3", 1000000, 1000, id="exponent"),
        pytest.param("1E", 10**21, 10**18, id="exa-is-no-exponent"),
        pytest.param(".5", 500, 1, id="no-leading-digit"),
        pytest.param("5.", 5000, 5, id="no-digit-after-the-point"),
        pytest.param("0.0000000001", 1, 1, id="finer-than-nano-rounds-up"),
        pytest.param(2, 2000, 2, id="json-integer"),
        pytest.param(0.5, 500, 1, id="json-float"),
    ],
)
def test_text_becomes_an_amount(text: str | int | float, milli: int, value: int) -> None:
    assert parse_quantity(text).milli == milli
    assert parse_quantity(text).value == value
    assert cpu_millis(text) == milli
    assert memory_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["", "m", ".", "1K", "1mi", "1 ", " 1", "1e", "1e+", "0x10", "1_000", "١", "1.2.3", "--1", "NaN", "1Kii"]
)
def test_what_is_no_quantity_is_named_in_the_error(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity") as caught:
        parse_quantity(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "9" * 900, "1" * 2000])
def test_absurd_sizes_neither_hang_nor_fill_memory(text: str) -> None:
    try:
        assert abs(parse_quantity(text).nanos).bit_length() < 10_000
    except QuantityError:
        assert len(text) > 1000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("9" * 5000, id="digits"),
        pytest.param("9" * 5000 + "m", id="decimal"),
        pytest.param("9" * 5000 + "Ki", id="binary"),
        pytest.param(10**5000, id="number"),
    ],
)
@pytest.mark.parametrize("read", [parse_quantity, cpu_millis, memory_bytes, quantity_float])
def test_thousands_of_digits_are_refused_by_every_reader(read: Callable[[str | int], object], text: str | int) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        read(text)


def test_nothing_times_a_huge_power_is_nothing() -> None:
    assert quantity_float("0e400") == 0.0


@pytest.mark.parametrize("value", [True, None, [], {}])
def test_other_json_values_are_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("2000", "2k"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("512Mi", "512Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("0", "0"),
        ("-1500m", "-1500m"),
        ("1e3", "1e3"),
        ("100000000000000000000", "100E"),
    ],
)
def test_canonical_text_has_the_largest_suffix_that_stays_whole(text: str, canonical: str) -> None:
    assert str(parse_quantity(text)) == canonical


def test_notation_takes_no_part_in_comparison() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024") == parse_quantity("1.024e3")
    assert hash(parse_quantity("1Ki")) == hash(parse_quantity("1024"))
    assert parse_quantity("1Ki") > parse_quantity("1k")


def test_arithmetic_is_exact_and_keeps_the_first_notation() -> None:
    assert str(parse_quantity("1Gi") + parse_quantity("1Mi")) == "1025Mi"
    assert str(Quantity(0) + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("100m") - parse_quantity("1")) == "-900m"
    assert str(parse_quantity("100m") * 3) == "300m"
    assert parse_quantity("0.1") + parse_quantity("0.2") == parse_quantity("0.3")


@pytest.mark.parametrize(("text", "number"), [("0.3", 0.30000000000000004), ("999u", 0.0009989999999999999), ("2", 2)])
def test_as_a_double_it_is_mantissa_times_one_power_of_ten(text: str, number: float) -> None:
    assert quantity_float(text) == number


@pytest.mark.parametrize(("millis", "text"), [(1500, "1500m"), (2000, "2"), (2_000_000, "2k"), (0, "0"), (-5, "-5m")])
def test_milli_values_print_as_statuses_show_them(millis: int, text: str) -> None:
    assert milli_text(millis) == text
    assert str(Quantity.of_milli(millis)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (476450463, "454Mi"),
        (1536 * 1024**2, "1.5Gi"),
        (17 * 1024, "17Ki"),
        (0, "0"),
        (1023, "1023"),
        (-(2**30), "-1Gi"),
    ],
)
def test_bytes_are_written_as_people_read_them(value: float, text: str) -> None:
    assert readable_bytes(value) == text


def test_quantities_are_readable_by_resource_and_rubbish_stays_as_it_is() -> None:
    assert readable("memory", "476450463") == "454Mi"
    assert readable("kubernetes.io/batch-memory", "1Gi") == "1Gi"
    assert readable("cpu", "250m") == "250m"
    assert readable("memory", "much") == "much"
    assert plain_number("12820m") == "12.82"
    assert plain_number("many") == "many"
