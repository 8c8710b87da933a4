"""Errors of YAML files fit on one line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.codec import parse_yaml
from kubetide.errors import DecodeError


def test_a_document_is_read() -> None:
    assert parse_yaml(b"a: [1, x]\n", what="f") == {"a": [1, "x"]}
    assert parse_yaml("", what="f") is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param("a: [b\n", "f line 2, column 1: is not YAML: did not find expected", id="unfinished"),
        pytest.param("a: b: c", "f line 1, column 5: is not YAML", id="twice"),
        pytest.param(b"\xff\xfe\x00", "f: is not YAML", id="binary"),
        pytest.param("a: 2024-13-45", "f: is not YAML: month", id="no-such-day"),
        pytest.param("a: !!python/object:os.system {}", "could not determine a constructor", id="tag"),
        pytest.param("[" * 5000, "is not YAML", id="deep"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data: str | bytes, told: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_yaml(data, what="f")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_no_text_breaks_it(data: str | bytes) -> None:
    with contextlib.suppress(DecodeError):
        parse_yaml(data, what="f")
