"""Ranges that Prometheus is asked for, in slices that it answers, and the numbers in its answers."""

import json
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.stats import prometheus_ranges
from kubetide.stats.prometheus_ranges import MAX_POINTS, PrometheusAnswer, Slice, read_matrix, slice_points, slices


def test_slices_cover_every_step_once() -> None:
    found = list(slices(0, 100, 10, 4))
    assert found == [Slice(0, 30, 4), Slice(40, 70, 4), Slice(80, 100, 3)]
    assert list(slices(0, 5, 10, 4)) == [Slice(0, 0, 1)]


@pytest.mark.parametrize(("count", "points"), [(0, MAX_POINTS), (1, MAX_POINTS), (20_000, 100), (10**9, 1)])
def test_more_series_make_shorter_slices(count: int, points: int) -> None:
    assert slice_points(count) == points


NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[0-9]{1,25}\.[0-9]{1,40}", fullmatch=True),
)
ODD = st.sampled_from(
    ["NaN", "+Inf", "-Inf", "+1.5", "1.", ".5", "007", "1_0", " 1", "1e400", "", "-", "1,2", "x", "٣"]
)
TIMES = st.one_of(
    st.integers(0, 2_000_000_000).map(str),
    st.floats(0, 2e9).map(repr),
    st.sampled_from(["-1", "1e11", "1e400", "null", '"1"', "1.", "[1]"]),
)


def answer(series: list[list[tuple[str, str]]]) -> bytes:
    """Return an answer as Prometheus writes it, without blanks."""
    written = (",".join(f"[{at},{json.dumps(text, ensure_ascii=False)}]" for at, text in one) for one in series)
    found = ",".join(f'{{"metric":{{"pod":"web-{i}"}},"values":[{each}]}}' for i, each in enumerate(written))
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{found}]}}}}'.encode()


def outcome(body: bytes) -> object:
    try:
        read = read_matrix(body)
    except PrometheusAnswer:
        return "refused"
    return read.labels, read.sizes.tolist(), read.times.tolist(), read.values.tobytes()


SERIES = st.lists(st.lists(st.tuples(TIMES, NUMBERS | ODD), max_size=4), max_size=4)
PLAIN = st.lists(st.lists(st.tuples(st.integers(0, 2**31).map(str), NUMBERS), max_size=6), max_size=4)


@given(SERIES | PLAIN)
def test_numbers_at_once_are_those_that_are_read_one_by_one(series: list[list[tuple[str, str]]]) -> None:
    body = answer(series)
    assert outcome(body) == outcome(body.replace(b"[[", b"[ ["))  # a blank is read the longer way


@given(st.lists(st.lists(st.tuples(st.integers(0, 2**31), st.floats(allow_nan=False, allow_infinity=False)))))
def test_what_prometheus_writes_is_read_at_once(series: list[list[tuple[int, float]]]) -> None:
    body = answer([[(str(at), repr(value)) for at, value in one] for one in series])
    with patch.object(prometheus_ranges, "read_results", side_effect=AssertionError("the longer way")):
        found = list(read_matrix(body).series())
    assert [one.labels["pod"] for one in found] == [f"web-{i}" for i in range(len(series))]
    for one, written in zip(found, series, strict=True):
        wanted = sorted(written, key=lambda pair: pair[0])
        assert one.times.tolist() == [at * 1_000_000 for at, _ in wanted]
        assert one.values.tobytes() == np.array([value for _, value in wanted], dtype=np.float64).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        *(b"null", b"5", b"{}", b'"[]"', b"[[]]", b'[1,"2"]', b"[[1,2]]", b'[["1","2"]]', b'[[1,"2"]', b'[[1,"2",3]]'),
        *(b'[[1,"2"],null]', b'[[[1,"2"]]]', b'[[1,"\xff"]]'),
    ],
)
def test_other_shapes_are_refused(values: bytes) -> None:
    good = answer([[("1", "2")]])
    assert outcome(good.replace(b'[[1,"2"]]', values)) == "refused"


def test_what_is_no_number_is_left_out_of_its_series_only() -> None:
    texts = [[("10", "1"), ("20", "NaN")], [], [("10", "+Inf")], [("30", "3"), ("10", "1"), ("20", "NaN")]]
    found = read_matrix(answer(texts))
    assert found.sizes.tolist() == [1, 0, 0, 2]
    assert found.times.tolist() == [10_000_000, 10_000_000, 30_000_000]
    assert found.values.tolist() == [1.0, 1.0, 3.0]
