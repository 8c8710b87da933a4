"""Answers of Prometheus to range queries as arrays, and the slices in which a range is asked.

Prometheus refuses ranges of more than 11,000 points, and an answer must fit memory, so a range is asked in slices whose
size follows the number of series seen so far. Slices do not overlap and come oldest first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
class Matrix:
    """All samples of an answer in one piece: those of the first series, then those of the second, each oldest first.

    An answer has hundreds of short series, and a call of NumPy costs as much as many samples.
    """

    labels: Sequence[Mapping[str, str]]
    sizes: Ints
    """How many samples each series has."""
    times: Ints
    """In microseconds."""
    values: Floats

    def series(self) -> Iterator[LabelledSeries]:
        """Return each series on its own."""
        begin = 0
        for labels, size in zip(self.labels, self.sizes.tolist(), strict=True):
            end = begin + size
            yield LabelledSeries(labels, self.times[begin:end], self.values[begin:end])
            begin = end


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


class _Unread(msgspec.Struct, frozen=True):
    """A `Result` whose samples are still text."""

    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")
    value: tuple[float, str] | None = None


_T = TypeVar("_T")
_Found = TypeVar("_Found", Result, _Unread)


class _Data(msgspec.Struct, Generic[_Found], frozen=True, rename="camel"):
    result_type: str = ""
    result: list[_Found] = []


class _Answer(msgspec.Struct, Generic[_Found], frozen=True, rename="camel"):
    status: str = ""
    error: str = ""
    error_type: str = ""
    data: _Data[_Found] | None = None


class _Names(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    error: str = ""
    error_type: str = ""
    data: list[str] = []


_DECODER = msgspec.json.Decoder(_Answer[Result])
_NAMES = msgspec.json.Decoder(_Names)
_UNREAD = msgspec.json.Decoder(_Answer[_Unread])
_FLOATS = msgspec.json.Decoder(list[float])
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
    return list(read_matrix(body).series())


def read_matrix(body: bytes) -> Matrix:
    """Return the samples of a matrix that are numbers; PrometheusAnswer when it is something else."""
    found = _plain_numbers(body)
    if found is None:
        results = read_results(body, "matrix")
        flat = [pair for one in results for pair in one.values]
        try:
            values = np.array([float(text) for _, text in flat], dtype=np.float64)
        except ValueError as error:
            raise PrometheusAnswer(f"a sample is no number: {error}") from error
        seconds = np.array([at for at, _ in flat], dtype=np.float64)
        found = [one.metric for one in results], [len(one.values) for one in results], seconds, values
    return _in_order(*found)


def read_results(body: bytes, *kinds: str) -> Sequence[Result]:
    """Return what an answer holds; PrometheusAnswer when it is an error, or of none of the kinds."""
    answer = _decoded(_DECODER, body)
    if answer.status != "success" or answer.data is None:
        raise PrometheusAnswer(f"{answer.error_type or 'error'}: {answer.error or answer.status}")
    if answer.data.result_type not in kinds:
        raise PrometheusAnswer(f"the answer is a {answer.data.result_type}, not a {' or '.join(kinds)}")
    return answer.data.result


def read_names(body: bytes) -> Sequence[str]:
    """Return the values of a label; PrometheusAnswer when it is something else."""
    answer = _decoded(_NAMES, body)
    if answer.status != "success":
        raise PrometheusAnswer(f"{answer.error_type or 'error'}: {answer.error or answer.status}")
    return answer.data


def _decoded(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error


_Samples = tuple[list[dict[str, str]], list[int], Floats, Floats]
_OF_NUMBERS = b"0123456789.eE+-"
_PAIR = b'[,""],'
"""A time and its value without the digits, as Prometheus writes them."""


def _plain_numbers(body: bytes) -> _Samples | None:
    """Return labels, sizes, seconds and values of a matrix as Prometheus writes it, None where it is anything else.

    Values are texts, and a Python string for each costs more than its digits. Where all that is left without digits is
    brackets, commas and quotes in their places, the quotes can go, and the rest is one JSON array of numbers. Whoever
    writes NaN, a blank or something wrong is read, or refused, the longer way.
    """
    try:
        answer = _UNREAD.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if answer.status != "success" or answer.data is None or answer.data.result_type != "matrix":
        return None
    parts = [bytes(one.values) for one in answer.data.result]
    if not all(part.startswith(b"[") for part in parts):  # null is no array
        return None
    sizes = [part.count(b"[") - 1 for part in parts]
    text = b",".join([part[1:-1] for part in parts if part != b"[]"])
    if text.translate(None, _OF_NUMBERS) != (_PAIR * sum(sizes))[:-1]:
        return None
    try:
        numbers = _FLOATS.decode(b"[" + text.translate(None, b'[]"') + b"]")
    except msgspec.DecodeError:
        return None
    pairs = np.fromiter(numbers, np.float64, len(numbers)).reshape(-1, 2)
    return [one.metric for one in answer.data.result], sizes, pairs[:, 0], pairs[:, 1]


def _in_order(labels: list[dict[str, str]], counts: list[int], seconds: Floats, values: Floats) -> Matrix:
    """Return a matrix without what is no number, each series oldest first."""
    if (np.abs(seconds) > _LATEST_SECONDS).any():
        raise PrometheusAnswer(f"a sample is dated {seconds[np.abs(seconds).argmax()]:g} seconds from 1970")
    times = np.rint(seconds * 1_000_000).astype(np.int64)
    sizes = np.array(counts, dtype=np.int64)
    good = np.isfinite(values)
    backwards = times[1:] < times[:-1]
    backwards[(ends := np.cumsum(sizes)[:-1])[(ends > 0) & (ends < times.size)] - 1] = False  # the next series begins
    if backwards.any() or not good.all():
        owner = np.repeat(np.arange(sizes.size), sizes)
        order = np.lexsort((times, owner))
        order = order[good[order]]
        times, values, sizes = times[order], values[order], np.bincount(owner[order], minlength=sizes.size)
    return Matrix(labels, sizes, times, np.ascontiguousarray(values))
