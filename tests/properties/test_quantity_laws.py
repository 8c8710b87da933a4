"""Laws of quantities: they read back, keep their order, and the fast paths agree with the exact one."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.quantity import (
    Notation,
    Quantity,
    cpu_millis,
    memory_bytes,
    nanos_as_millis,
    parse_quantity,
)

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+0"]

quantities = st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from(Notation))
texts = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{f'.{fraction}' if fraction else ''}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**12),
    st.text("0123456789", max_size=12),
    st.sampled_from(SUFFIXES),
)


@given(quantities)
def test_what_is_printed_reads_back(quantity: Quantity) -> None:
    assert parse_quantity(str(quantity)) == quantity


@given(texts)
def test_the_amount_is_the_number_rounded_up_to_nano(text: str) -> None:
    number = text.rstrip("numkMGTPEKi")
    exponents = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    binary = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
    if "e" in text or "E-" in text:
        exact = Fraction(text)
    else:
        suffix = text[len(number) :]
        exact = Fraction(number) * (
            2 ** binary[suffix] if suffix in binary else Fraction(10) ** exponents.get(suffix, 0)
        )
    nanos = parse_quantity(text).nanos
    assert 0 <= abs(nanos) - abs(exact * 10**9) < 1
    assert (nanos > 0) == (exact > 0)
    assert (nanos < 0) == (exact < 0)


@given(texts)
def test_the_fast_paths_agree_with_the_exact_one(text: str) -> None:
    assert cpu_millis(text) == parse_quantity(text).milli
    assert memory_bytes(text) == parse_quantity(text).value


nanos = st.one_of(st.just("0"), st.integers(0, 10**18).map(lambda number: f"{number}n"))


@given(st.lists(nanos, min_size=1))
def test_plain_nanos_are_read_together(amounts: list[str]) -> None:
    assert nanos_as_millis(amounts) == [cpu_millis(text) for text in amounts]


@given(st.lists(st.one_of(nanos, texts, st.text("0123456789nm_ +٣", max_size=22))))
def test_what_is_read_together_is_what_each_is_by_itself(amounts: list[str]) -> None:
    found = nanos_as_millis(amounts)
    assert found is None or found == [cpu_millis(text) for text in amounts]


@given(quantities, quantities)
def test_order_is_the_order_of_amounts(one: Quantity, other: Quantity) -> None:
    assert (one < other) == (one.nanos < other.nanos)
    assert (one == other) == (one.nanos == other.nanos)
    assert (one + other) - other == one
