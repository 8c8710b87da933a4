"""Numbers of kernel files: decimal, within 64 bits, and nothing that Python alone would take."""

import pytest

from kubetide.node.core.formats.numbers import FormatError, counters, key_values, limit, signed, unsigned


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_000", "0x10", "1.0", "٣", "max", "9223372036854775808", "9" * 5000]
)
def test_what_is_no_signed_number_of_64_bits_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        signed(text)


def test_the_ends_of_64_bits_are_numbers() -> None:
    assert signed("-9223372036854775808") == -(2**63)
    assert unsigned("18446744073709551615") == 2**64 - 1
    assert signed("+0007") == 7
    with pytest.raises(FormatError):
        unsigned("-1")


def test_no_limit_is_minus_one() -> None:
    assert limit("max") == -1
    assert limit("5") == 5


def test_lines_of_flat_files_may_be_short_long_or_oddly_spaced() -> None:
    assert key_values("a 1\nb\n\n c\t2 3\n") == {"a": "1", "c": "2"}
    assert counters("usage 5 extra\n idle\t7\n", ("usage", "idle")) == (5, 7)


@pytest.mark.parametrize("text", ["", "usages 5", "usage", "usage \n", "usage x", "usage -1"])
def test_a_counter_that_is_missing_or_no_number_is_an_error(text: str) -> None:
    with pytest.raises(FormatError):
        counters(text, ("usage",))


def test_of_two_lines_with_one_name_the_last_counts() -> None:
    text = "a x\nb 1\na 2 3\n"
    assert counters(text, ("a", "b")) == (2, 1)
    assert key_values(text) == {"a": "2", "b": "1"}
