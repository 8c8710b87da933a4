"""Laws of the recommender's model, whatever happens in the cluster."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import parse_selector
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.core.checkpoint import checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, merge_rows, recommend, rows_of
from kubetide.vpa.recommender.core.usage.feeding import claim_windows

START = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
LABELS = [
    {"app": "web"},
    {"app": "web", "rev": "2"},
    {"app": "other"},
    {"app": "web", "job-name": "a"},
    {"app": "web", "rev": "2", "controller-uid": "b"},
]

pods = st.integers(0, 4)
steps = st.one_of(
    st.tuples(st.just("pod"), pods, st.integers(0, len(LABELS) - 1)),
    st.tuples(st.just("gone"), pods, st.just(0)),
    st.tuples(st.just("sample"), pods, st.integers(1, 4000)),
    st.tuples(st.just("oom"), pods, st.integers(10, 2000)),
    st.tuples(st.just("later"), st.integers(1, 600), st.just(0)),
)
stories = st.lists(steps, min_size=1, max_size=60)


def world() -> tuple[Model, VpaState]:
    model = Model()
    vpa = VpaState(ObjectKey("ns", "web"), parse_selector("app=web"), created=START)
    return model, model.set_vpa(vpa, keep_history=False)


def live(model: Model, story: list[tuple[str, int, int]], *, folding: bool = False) -> datetime:
    now = START
    for what, one, other in story:
        key = ObjectKey("ns", f"p{one}")
        match what:
            case "pod":
                model.set_pod(key, LABELS[other], "Running", now=now, uid=f"u{one}")
                model.set_container(key, "main", now=now)
            case "gone":
                model.delete_pod(key)
            case "later":
                now += timedelta(minutes=one)
                if folding:
                    model.fold_departed(now=now)
            case _ if key in model.pods:
                row, at = model.row(key, "main", now=now), microseconds(now)
                if what == "oom":
                    model.containers.add_oom(row, at, other * 2**20)
                else:
                    model.containers.add_cpu(np.array([row]), np.array([at]), np.array([other]))
                    model.containers.add_memory(np.array([row]), np.array([at]), np.array([other * 2**20]))
    return now


@settings(max_examples=80, deadline=None)
@given(stories)
def test_bounds_enclose_the_target(story: list[tuple[str, int, int]]) -> None:
    model, vpa = world()
    live(model, story)
    for one in recommend(model, [vpa], Options())[vpa.key]:
        assert one.lower is not None
        assert one.upper is not None
        for resource, target in one.target.items():
            assert one.lower[resource] <= target <= one.upper[resource]


@settings(max_examples=80, deadline=None)
@given(stories)
def test_pod_counts_are_those_of_matching_pods(story: list[tuple[str, int, int]]) -> None:
    model, vpa = world()
    live(model, story)
    assert vpa.pod_count == sum(pod.labels.labels.get("app") == "web" for pod in model.pods.values())
    late = VpaState(ObjectKey("ns", "late"), parse_selector("app in (web)"), created=START)
    model.set_vpa(late, keep_history=False)
    assert late.pod_count == vpa.pod_count
    assert sorted(late.aggregates()) == sorted(vpa.aggregates())


@settings(max_examples=60, deadline=None)
@given(stories)
def test_a_restart_loses_nothing_but_the_last_digits_of_weights(story: list[tuple[str, int, int]]) -> None:
    model, vpa = world()
    now = live(model, story)
    stored = checkpoints(model, [vpa], now=now)[str(vpa.key)]
    other, again = world()
    for one in stored:
        other.restore(
            again,
            one.container,
            cpu=one.cpu,
            memory=one.memory,
            first=one.first,
            last=one.last,
            count=one.count,
            now=now,
        )
        again.windows[one.container] = one.windows
    for pod in model.pods.values():
        other.set_pod(pod.key, pod.labels.labels, pod.phase, now=now, uid=pod.uid)
        for name in pod.containers:
            other.set_container(pod.key, name, now=now)
    claim_windows(other)
    restored = checkpoints(other, [again], now=now)[str(again.key)]
    assert [one.container for one in restored] == [one.container for one in stored]
    for old, new in zip(stored, restored, strict=True):
        assert (new.first, new.last, new.count) == (old.first, old.last, old.count)
        assert sorted(new.windows) == sorted(old.windows)
        for before, after in ((old.cpu, new.cpu), (old.memory, new.memory)):
            buckets = before.weights.keys() | after.weights.keys()
            assert all(abs(before.weights.get(b, 0) - after.weights.get(b, 0)) <= 2 for b in buckets)
    one_way, other_way = (merge_rows(m.aggregates, rows_of([v])) for m, v in ((model, vpa), (other, again)))
    for resource in ("cpu", "memory"):
        for (_, mine), (_, theirs) in zip(one_way.blocks[resource], other_way.blocks[resource], strict=True):
            heaviest = np.maximum(mine.weights.max(axis=0, initial=0.0), 1e-9)
            apart = np.where(mine.total > 0, theirs.reference - mine.reference, 0)
            scale = np.exp2(apart / 86_400_000_000)
            assert np.allclose(mine.weights / heaviest, theirs.weights * scale / heaviest, atol=0.001)


@settings(max_examples=60, deadline=None)
@given(stories)
def test_forgetting_everything_leaves_nothing(story: list[tuple[str, int, int]]) -> None:
    model, vpa = world()
    now = live(model, story)
    for key in list(model.pods):
        model.delete_pod(key)
    model.delete_vpa(vpa.key)
    model.collect_garbage(now=now + timedelta(days=9), has_controller={})
    assert model.aggregate_count() == 0
    assert len(model.aggregates) == 0
    assert len(model.containers) == 0


@settings(max_examples=80, deadline=None)
@given(stories)
def test_folding_departed_pods_changes_nothing_that_a_vpa_knows(story: list[tuple[str, int, int]]) -> None:
    (plain, one), (folded, other) = world(), world()
    now = live(plain, story)
    live(folded, story, folding=True)
    folded.fold_departed(now=now)
    assert other.pod_count == one.pod_count
    mine, theirs = (checkpoints(m, [v], now=now)[str(v.key)] for m, v in ((plain, one), (folded, other)))
    assert [c.container for c in theirs] == [c.container for c in mine]
    for old, new in zip(mine, theirs, strict=True):
        assert (new.first, new.last, new.count) == (old.first, old.last, old.count)
        assert sorted(new.windows) == sorted(old.windows)
        for before, after in ((old.cpu, new.cpu), (old.memory, new.memory)):
            buckets = before.weights.keys() | after.weights.keys()
            assert all(abs(before.weights.get(b, 0) - after.weights.get(b, 0)) <= 1 for b in buckets)
