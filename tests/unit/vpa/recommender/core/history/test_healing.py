"""A checkpoint that lies in the future keeps its amounts and gives way to new samples again."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import parse_selector
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.history.healing import Present, healed
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
MIB = 2**20
KEY, POD = ObjectKey("shop", "web"), ObjectKey("shop", "a")


def begin() -> tuple[Model, VpaState, int]:
    model = Model()
    state = model.set_vpa(VpaState(KEY, parse_selector("app=web"), created=NOW), keep_history=False)
    model.set_pod(POD, {"app": "web"}, "Running", now=NOW, uid="uid-a")
    return model, state, model.set_container(POD, "main", now=NOW)


def feed(model: Model, row: int, start: datetime, minutes: int, *, millis: int, mib: int) -> None:
    """Add a sample every ten minutes."""
    times = microseconds(start) + np.arange(0, minutes, 10) * 60_000_000
    rows = np.full(times.size, row)
    model.containers.add_cpu(rows, times, np.full(times.size, millis))
    model.containers.add_memory(rows, times, np.full(times.size, mib * MIB))


def saved(model: Model, state: VpaState, now: datetime) -> Checkpoint:
    return checkpoints(model, [state], now=now)[str(KEY)][0]


def brought_back(content: Checkpoint, now: datetime = NOW) -> tuple[Checkpoint, str]:
    return healed(content, Tuning(), Present(now=now, skew=5 * MINUTE, loop=10 * MINUTE))


def restored(content: Checkpoint, now: datetime = NOW) -> tuple[Model, VpaState, int]:
    model, state, row = begin()
    model.restore(
        state,
        "main",
        cpu=content.cpu,
        memory=content.memory,
        first=content.first,
        last=content.last,
        count=content.count,
        now=now,
    )
    return model, state, row


def target(model: Model, state: VpaState) -> tuple[float, float]:
    found = recommend(model, [state], Options())[KEY][0].target
    return float(found["cpu"]) * 1000, float(found["memory"]) / MIB


@pytest.mark.parametrize("days", [2, 30, 90, 300, 3000], ids=lambda days: f"{days}-days-ahead")
def test_amounts_stay_and_new_samples_count_again(days: int) -> None:
    model, state, row = begin()
    feed(model, row, NOW - 2 * DAY, 2 * 1440, millis=1000, mib=1000)
    feed(model, row, NOW + days * DAY, 60, millis=300, mib=400)
    poisoned = saved(model, state, NOW)
    content, problem = brought_back(poisoned)
    assert problem.startswith("lastSampleStart 20")
    assert content.count == poisoned.count
    assert content.last == microseconds(NOW)
    assert max(content.cpu.reference, content.memory.reference) <= microseconds(NOW + DAY)
    model, state, row = restored(content)
    before = target(model, state)
    assert before == target(*restored(poisoned)[:2]), "what it knew of amounts stays"
    feed(model, row, NOW, 4 * 1440, millis=2000, mib=3000)
    cpu, memory = target(model, state)
    assert cpu > 2000
    assert memory > 3000


def test_open_windows_end_within_an_interval_and_take_samples_again() -> None:
    model, state, row = begin()
    feed(model, row, NOW + 90 * DAY, 10, millis=300, mib=400)
    content, _ = brought_back(saved(model, state, NOW))
    (window,) = content.windows
    assert window.end == microseconds(NOW + DAY)
    assert window.last == window.last_cpu == microseconds(NOW)
    assert window.peak == 400 * MIB


@pytest.mark.parametrize("field", ["cpu", "memory"])
def test_a_reference_in_the_future_is_enough(field: str) -> None:
    model, state, row = begin()
    feed(model, row, NOW - DAY, 1440, millis=1000, mib=1000)
    good = saved(model, state, NOW)
    ahead = microseconds(NOW + 400 * DAY) // (24 * 3600 * 10**6) * (24 * 3600 * 10**6)
    histogram = getattr(good, field)
    bad = Checkpoint(
        container="main",
        cpu=type(histogram)(ahead, good.cpu.weights, good.cpu.total) if field == "cpu" else good.cpu,
        memory=type(histogram)(ahead, good.memory.weights, good.memory.total) if field == "memory" else good.memory,
        first=good.first,
        last=good.last,
        count=good.count,
        windows=good.windows,
    )
    content, problem = brought_back(bad)
    assert problem.startswith(f"{field}Histogram.referenceTimestamp 2027-04-")
    assert getattr(content, field).reference <= microseconds(NOW + DAY)


@settings(max_examples=40)
@given(
    minutes=st.integers(1, 3000),
    began=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_a_checkpoint_of_the_present_is_left_as_it_is(minutes: int, began: datetime) -> None:
    model, state, row = begin()
    feed(model, row, began, minutes, millis=300, mib=400)
    now = began + minutes * MINUTE
    content = saved(model, state, now)
    assert brought_back(content, now) == (content, "")


def test_histograms_whose_times_are_right_weigh_what_they_did() -> None:
    model, state, row = begin()
    feed(model, row, NOW - 5 * DAY, 5 * 1440, millis=300, mib=400)
    good = saved(model, state, NOW)
    late = Checkpoint(
        container="main",
        cpu=good.cpu,
        memory=good.memory,
        first=good.first,
        last=microseconds(NOW + DAY),
        count=good.count,
    )
    content, _ = brought_back(late)
    for one, other in ((content.cpu, good.cpu), (content.memory, good.memory)):
        assert one.weights == other.weights
        half_lives = (one.reference - other.reference) // (24 * 3600 * 10**6)
        assert one.total == pytest.approx(other.total / 2**half_lives, rel=1e-12)
