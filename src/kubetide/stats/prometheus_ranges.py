"""Answers of Prometheus to range queries as arrays, and the slices in which a range is asked.

Prometheus refuses ranges of more than 11,000 points, and an answer must fit memory, so a range is asked in slices whose
size follows the number of series seen so far. Slices do not overlap and come oldest first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kubetide.errors import KubetideError
from kubetide.stats.buckets import Floats, Ints

MAX_POINTS = 11_000
SAMPLES_PER_SLICE = 2_000_000


class PrometheusAnswer(KubetideError):
    """Prometheus answered something that cannot be used."""


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """Samples of any series, oldest first: times in microseconds."""

    labels: Mapping[str, str]
    times: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the range: `points` steps from `start` to `end`, both included, in seconds."""

    start: int
    end: int
    points: int


class Result(msgspec.Struct, frozen=True):
    """One series of an answer, or one value of it."""

    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: list[Result] = []


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    error: str = ""
    error_type: str = ""
    data: _Data | None = None


_DECODER = msgspec.json.Decoder(_Answer)
_LATEST_SECONDS = 253_402_300_800.0
"""The year 10000: later times are none, and in microseconds they would not fit 64 bits."""


def slices(start: int, end: int, step: int, points: int) -> Iterator[Slice]:
    """Split a range into slices of at most `points` steps."""
    at = start
    while at <= end:
        last = min(at + (points - 1) * step, end)
        count = (last - at) // step + 1
        yield Slice(at, at + (count - 1) * step, count)
        at += count * step


def slice_points(series: int) -> int:
    """Return how many steps to ask for when that many series answer."""
    if series <= 0:
        return MAX_POINTS
    return max(1, min(MAX_POINTS, SAMPLES_PER_SLICE // series))


def read_any(body: bytes) -> list[LabelledSeries]:
    """Return the series of a matrix with their labels; PrometheusAnswer when it is something else."""
    results = read_results(body, "matrix")
    return [LabelledSeries(one.metric, *numbers) for one, numbers in zip(results, read_numbers(results), strict=True)]


def read_results(body: bytes, *kinds: str) -> Sequence[Result]:
    """Return what an answer holds; PrometheusAnswer when it is an error, or of none of the kinds."""
    try:
        answer = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error
    if answer.status != "success" or answer.data is None:
        raise PrometheusAnswer(f"{answer.error_type or 'error'}: {answer.error or answer.status}")
    if answer.data.result_type not in kinds:
        raise PrometheusAnswer(f"the answer is a {answer.data.result_type}, not a {' or '.join(kinds)}")
    return answer.data.result


def read_numbers(results: Sequence[Result]) -> Iterator[tuple[Ints, Floats]]:
    """Return the times and values of each series that are numbers, oldest first.

    All series are converted at once: an answer has hundreds of short ones, and a call of NumPy costs as much as many
    samples.
    """
    flat = [pair for one in results for pair in one.values]
    seconds = np.array([at for at, _ in flat], dtype=np.float64)
    if (np.abs(seconds) > _LATEST_SECONDS).any():
        raise PrometheusAnswer(f"a sample is dated {seconds[np.abs(seconds).argmax()]:g} seconds from 1970")
    times = np.rint(seconds * 1_000_000).astype(np.int64)
    try:
        values = np.array([float(text) for _, text in flat], dtype=np.float64)
    except ValueError as error:
        raise PrometheusAnswer(f"a sample is no number: {error}") from error
    good = np.isfinite(values)
    clean = bool(good.all())
    backwards = times[1:] < times[:-1]
    begin = 0
    for one in results:
        end = begin + len(one.values)
        mine, numbers = times[begin:end], values[begin:end]
        if not clean:
            mine, numbers = mine[good[begin:end]], numbers[good[begin:end]]
        if backwards[begin : max(begin, end - 1)].any():
            order = np.argsort(mine, kind="stable")
            mine, numbers = mine[order], numbers[order]
        yield mine, numbers
        begin = end
