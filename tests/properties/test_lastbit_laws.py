"""Whatever the last bit of `exp`, `log` and their kin is on a CPU: the same buckets, checkpoints, recommendations."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.qos import qos
from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.sim.load.curves import Diurnal
from kubetide.embedded.sim.node.columns import KernelColumns
from kubetide.embedded.sim.node.disks import Disks
from kubetide.embedded.sim.node.groups import CGroup
from kubetide.node.core.prediction.peak import PeakModels, PodUsage
from kubetide.stats.bank import Bank
from kubetide.stats.buckets import exponential
from kubetide.stats.instants import microseconds
from kubetide.stats.saved import save
from kubetide.vpa.recommender.core.checkpoint import checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import raised
from kubetide.vpa.recommender.core.recommend import Options, recommend
from lastbit import another_cpu

T = TypeVar("T")

START = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
DAY = timedelta(days=1)


def everywhere(work: Callable[[], T]) -> tuple[T, T, T]:
    """Return what comes out as things are, and with every open last bit higher or lower."""
    results = []
    for direction in (0, 1, -1):
        with another_cpu(direction):
            results.append(work())
    return results[0], results[1], results[2]


first_buckets = st.sampled_from([0.01, 0.025, 1.0, 1e7, 5.0 * 1024 * 1024])
ratios = st.sampled_from([1.05, 1.3, 2.0]) | st.floats(1.02, 4.0)
# A bucket, and how many floats beside its start: where a last bit decides.
edges = st.tuples(st.integers(0, 250), st.integers(-3, 3))
samples = st.lists(
    st.tuples(st.integers(0, 4), edges, st.sampled_from([0.1, 1.0]), st.integers(0, 300 * 86_400 * 1_000_000)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(first_buckets, ratios, samples)
def test_buckets_percentiles_and_checkpoints_are_the_same(
    first: float, ratio: float, given_samples: list[tuple[int, tuple[int, int], float, int]]
) -> None:
    def work() -> object:
        scheme = exponential(maximum=first * 1e5, first=first, ratio=ratio, epsilon=0.0001)
        bank = Bank(scheme, DAY, block_width=2)
        columns = np.array([bank.allocate() for _ in range(5)])
        which, _, weights, times = (np.array(part) for part in zip(*given_samples, strict=True))
        starts = scheme.starts[[bucket % scheme.count for _, (bucket, _), _, _ in given_samples]]
        beside = np.array([steps for _, (_, steps), _, _ in given_samples])
        values = np.where(starts > 0, (starts.view(np.int64) + beside).view(np.float64), 0.0)
        bank.add(columns[which], values, weights, microseconds(START) + times)
        merged = bank.merged(columns, np.array([0, 0, 0, 1, 1]), 2)
        return (
            scheme.starts.tobytes(),
            scheme.find(values).tolist(),
            save(bank.select(columns)),
            save(merged),
            merged.percentiles([0.5, 0.9, 0.95]).tobytes(),
        )

    plain, higher, lower = everywhere(work)
    assert plain == higher == lower


usage = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 20_000), st.integers(1, 2**36), st.integers(1, 2000)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=40)
@given(usage)
def test_recommendations_are_the_same(story: list[tuple[int, int, int, int]]) -> None:
    def work() -> object:
        model = Model()
        vpa = VpaState(ObjectKey("ns", "web"), parse_selector("app=web"), created=START)
        vpa = model.set_vpa(vpa, keep_history=False)
        now, floor = START, None
        for pod, millis, memory, minutes in story:
            now += timedelta(minutes=minutes)
            key, at = ObjectKey("ns", f"p{pod}"), np.array([microseconds(now)])
            model.set_pod(key, {"app": "web"}, "Running", now=now, uid=f"u{pod}")
            model.set_container(key, "main", now=now)
            row = model.row(key, "main", now=now)
            model.containers.add_cpu(np.array([row]), at, np.array([millis]))
            model.containers.add_memory(np.array([row]), at, np.array([memory]))
            floor = raised(floor, memory, at=now, half_life=7 * DAY)
        return recommend(model, [vpa], Options()), checkpoints(model, [vpa], now=now), floor

    plain, higher, lower = everywhere(work)
    assert plain == higher == lower


@settings(max_examples=40)
@given(usage)
def test_predictions_of_a_node_are_the_same(story: list[tuple[int, int, int, int]]) -> None:
    def work() -> object:
        models = PeakModels()
        now = START
        for pod, millis, memory, minutes in story:
            now += timedelta(minutes=minutes)
            used = PodUsage(f"u{pod}", qos.PROD, millis / 1000, float(memory))
            models.train(now, [used], millis / 500, memory * 2.0)
        return models.predict_many(models.ids()), [models.save(identity, now) for identity in models.ids()]

    plain, higher, lower = everywhere(work)
    assert plain == higher == lower


@settings(max_examples=60)
@given(
    st.floats(0.0, 604_800.0),
    st.floats(0.0, 24.0),
    st.sampled_from([1.0, 1.5, 2.0]) | st.floats(0.0, 8.0),
    st.lists(st.floats(0.001, 3600.0), min_size=1, max_size=5),
)
def test_load_and_pressure_of_the_simulation_are_the_same(
    week: float, peak_hour: float, sharpness: float, seconds: list[float]
) -> None:
    def work() -> object:
        columns, disks = KernelColumns(4), Disks()
        columns.pressed = True
        columns.stall[:] = [0.0, 0.3, 0.7, 1.0]
        disks.want(0, CGroup("pod", None), 0, 1e9)
        for each in seconds:
            columns.count(4, each)
            disks.count(each)
        level = Diurnal(3.0, 470.0, peak_hour, sharpness).level(week, week)
        return level, columns.some10.tobytes(), columns.some300.tobytes(), disks.pressure_of([0])

    plain, higher, lower = everywhere(work)
    assert plain == higher == lower


@pytest.mark.parametrize("direction", [1, -1])
def test_a_bucket_found_with_a_logarithm_would_move(direction: int) -> None:
    first = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001).firsts.values
    at_the_edge = np.concatenate([first, np.nextafter(first, 0.0)])

    def by_logarithm() -> list[int]:
        buckets = np.log(at_the_edge * (1.05 - 1.0) / 0.01 + 1.0) / 0.04879016416943205
        moved: list[int] = buckets.astype(int).tolist()
        return moved

    here = by_logarithm()
    with another_cpu(direction):
        there = by_logarithm()
        assert math.exp(1.0) == math.nextafter(math.e, direction * math.inf)
    assert here != there
    assert math.exp(1.0) == math.e
