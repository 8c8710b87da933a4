"""Learned sizes of VPAs: who takes part, in which way, and what an hour's end may cost."""

import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.testing.builders import make_pod
from kubetide.vpa.core.learned import Choice, ChosenBy, Estimator
from kubetide.vpa.recommender.core.adaptive import columns
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.adaptive.sizes import Adaptive
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options

START = datetime(2026, 1, 5, 0, 10, tzinfo=UTC)
MIB = 2.0**20


def add_vpa(model: Model, name: str, estimator: Estimator, pods: int = 1) -> ObjectKey:
    key = ObjectKey("default", name)
    state = VpaState(key, parse_selector(f"app={name}"), created=START - timedelta(days=9), loaded=True)
    model.set_vpa(state, keep_history=False).choice = Choice(estimator, ChosenBy.FLAG)
    for number in range(pods):
        pod = ObjectKey("default", f"{name}-{number}")
        model.set_pod(pod, {"app": name, "pod": str(number)}, "Running", now=START)
        model.set_container(pod, "main", now=START)
    return key


def sample(model: Model, learned: LearnedSizes) -> None:
    """Let every container use half a core and 100 MiB."""
    slots = np.array([slot for vpa in model.vpas.values() for _, slot in vpa.aggregates()], dtype=np.int64)
    learned.add(slots, np.full(slots.size, 0.5), slots, np.full(slots.size, 100.0 * MIB))


def test_a_plain_vpa_that_grows_between_two_hours_does_not_stop_learning() -> None:
    model = Model()
    key = add_vpa(model, "web", Estimator.ADAPTIVE)
    learned = LearnedSizes(model, Options(), lambda pod: None)
    learned.begin_loop(START)
    sample(model, learned)
    capacity = model.aggregates.first.size
    add_vpa(model, "plain", Estimator.VPA, pods=capacity + 1)
    assert model.aggregates.first.size > capacity
    learned.begin_loop(START + timedelta(minutes=1))
    sample(model, learned)
    state = learned.state(key, "main")
    assert state is not None
    # The first number is how many CPU samples the running hour has.
    assert state.numbers[0] == 2.0


@pytest.mark.parametrize("gone", [False, True], ids=["switched-off-and-on", "deleted-and-made-anew"])
def test_what_was_learned_waits_for_a_vpa_that_left_and_goes_with_one_that_is_gone(gone: bool) -> None:
    model, key = Model(), ObjectKey("default", "web")
    add_vpa(model, "web", Estimator.ADAPTIVE)
    learned = LearnedSizes(model, Options(), lambda pod: None)
    for minutes in range(0, 180, 20):
        learned.begin_loop(START + timedelta(minutes=minutes))
        sample(model, learned)
    before = learned.state(key, "main")
    if gone:
        model.delete_vpa(key)
        learned.forget({key})
    else:
        model.vpas[key].choice = Choice(Estimator.VPA, ChosenBy.KILL_SWITCH)
    learned.begin_loop(START + timedelta(minutes=165))
    assert learned.state(key, "main") is None
    add_vpa(model, "web", Estimator.ADAPTIVE)
    learned.begin_loop(START + timedelta(minutes=166))
    after = learned.state(key, "main")
    assert before is not None
    assert after is not None
    assert np.array_equal(after.numbers, before.numbers, equal_nan=True) is not gone


def test_pods_that_get_a_limit_of_their_own_are_sized_by_two_numbers_from_the_next_hour_on() -> None:
    model, pods = Model(), [convert(make_pod("web-0", memory="1Gi", limits={"memory": "1Gi"}), Pod)]
    key = add_vpa(model, "web", Estimator.ADAPTIVE)
    learned = LearnedSizes(model, Options(), lambda pod: pods[-1])
    for minutes in (0, 30):
        learned.begin_loop(START + timedelta(minutes=minutes))
        sample(model, learned)
    pods.append(convert(make_pod("web-0", memory="1Gi"), Pod))
    learned.begin_loop(START + timedelta(minutes=40))
    before = learned.state(key, "main")
    assert before is not None
    assert not before.limit_apart
    learned.begin_loop(START + timedelta(hours=1))
    after = learned.state(key, "main")
    assert after is not None
    assert after.limit_apart


@pytest.mark.parametrize("apart", [True, False], ids=["two-numbers", "one-number"])
def test_sizes_do_not_depend_on_how_many_are_computed_at_once(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn() -> list[bytes]:
        rng, made = np.random.default_rng(2), Adaptive(50, limit_apart=apart)
        found = []
        for _ in range(30):
            samples = rng.random((4, 50))
            samples[:, rng.random(50) < 0.1] = np.nan
            made.observe(cpu=samples, memory=samples * 1e9)
            sizes = made.decide(rng.random((len(PERCENTILES), 50)))
            found += [sizes.cpu.tobytes(), sizes.memory.tobytes()]
        return [*found, *(made.save(column).tobytes() for column in range(50)), made.save_fleet().tobytes()]

    whole = learn()
    monkeypatch.setattr(columns, "_PART", 7)
    assert learn() == whole


@pytest.mark.parametrize("apart", [True, False], ids=["two-numbers", "one-number"])
def test_the_end_of_an_hour_needs_little_beside_what_is_kept(apart: bool) -> None:
    size = 30_000
    made, rng = Adaptive(size, limit_apart=apart), np.random.default_rng(4)
    kept = 8 * sum(table.height for table in made.tables()) * size
    for hour in range(3):
        used = rng.random((1, size))
        percentiles = np.full((len(PERCENTILES), size), 0.5)
        if hour == 2:
            tracemalloc.start()
        made.observe(cpu=used, memory=used * 1e9)
        made.decide(percentiles)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.25 * kept
