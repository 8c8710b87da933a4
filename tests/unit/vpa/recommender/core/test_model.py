from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import NOTHING, parse_selector
from kubetide.stats.instants import ZERO_TIME, microseconds
from kubetide.stats.saved import Saved
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.checkpoint import checkpoints
from kubetide.vpa.recommender.core.entities import VpaState, oldest
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
WEB = {"app": "web"}


def key(name: str) -> ObjectKey:
    return ObjectKey("shop", name)


def vpa(name: str = "web", selector: str = "app=web", *, created: datetime = NOW) -> VpaState:
    return VpaState(key(name), parse_selector(selector), created=created)


def with_pod(model: Model, name: str, labels: dict[str, str], phase: str = "Running") -> int:
    model.set_pod(key(name), labels, phase, now=NOW)
    return model.set_container(key(name), "main", now=NOW)


def sample(model: Model, row: int, at: datetime = NOW) -> None:
    model.containers.add_cpu(np.array([row]), np.array([microseconds(at)]), np.array([100]))


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("app=web", True, id="equality"),
        pytest.param("app in (web,api)", True, id="set"),
        pytest.param("app", True, id="exists"),
        pytest.param("app!=api", True, id="not-equal"),
        pytest.param("", True, id="everything"),
        pytest.param("app=web,tier=x", False, id="one-requirement-fails"),
        pytest.param("!app", False, id="absent"),
    ],
)
def test_selectors_match_whether_pods_or_vpas_come_first(selector: str, matches: bool) -> None:
    before, after = Model(), Model()
    first = before.set_vpa(vpa(selector=selector), keep_history=False)
    with_pod(before, "p", WEB)
    with_pod(after, "p", WEB)
    second = after.set_vpa(vpa(selector=selector), keep_history=False)
    assert first.pod_count == second.pod_count == int(matches)
    assert bool(list(first.aggregates())) == bool(list(second.aggregates())) == matches
    assert before.matches_any("shop", WEB) == matches


def test_pods_with_equal_labels_share_an_aggregate_and_it_outlives_them() -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    sample(model, with_pod(model, "a", WEB))
    sample(model, with_pod(model, "b", WEB))
    assert model.aggregate_count() == 1
    model.delete_pod(key("a"))
    model.delete_pod(key("b"))
    assert state.pod_count == 0
    assert [name for name, _ in state.aggregates()] == ["main"]
    assert model.aggregates.count[next(slot for _, slot in state.aggregates())] == 2


def test_a_relabelled_pod_feeds_the_aggregate_of_its_new_labels() -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    row = with_pod(model, "a", {"app": "other"})
    model.set_pod(key("a"), WEB, "Running", now=NOW)
    assert state.pod_count == 1
    sample(model, row)
    assert model.aggregates.count[next(slot for _, slot in state.aggregates())] == 1


def test_samples_of_a_relabelled_pod_go_nowhere_once_its_aggregate_is_collected() -> None:
    """As in the original, which ties a relabelled container to one aggregate for good."""
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    with_pod(model, "a", {"app": "other"})
    model.set_pod(key("a"), WEB, "Running", now=NOW)
    later = NOW + timedelta(days=9)
    model.collect_garbage(now=later, has_controller={})
    assert model.aggregate_count() == 0
    sample(model, model.row(key("a"), "main", now=later), later)
    assert model.aggregate_count() == 0
    assert list(state.aggregates()) == []


def test_pods_that_have_ended_are_counted_too() -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    for name, phase in (("a", "Running"), ("b", "Succeeded"), ("c", "Failed")):
        with_pod(model, name, WEB, phase)
    assert state.pod_count == 3


def test_a_new_selector_forgets_restored_history_by_default_to_keep_it() -> None:
    for keep in (False, True):
        model = Model()
        state = model.set_vpa(vpa(), keep_history=False)
        empty = Saved(ZERO_TIME, {}, 0.0)
        model.restore(state, "main", cpu=Saved(0, {5: 10}, 1.0), memory=empty, first=0, last=0, count=7, now=NOW)
        gone = model.set_vpa(VpaState(state.key, NOTHING, created=NOW), keep_history=keep)
        assert bool(gone.history) == keep
        back = model.set_vpa(vpa(), keep_history=keep)
        assert bool(back.history) == keep
        assert len(model.aggregates) == int(keep)


def test_a_checkpoint_that_cannot_be_loaded_leaves_nothing_behind() -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    empty = Saved(ZERO_TIME, {}, 0.0)
    with pytest.raises(ValueError, match="outside"):
        model.restore(state, "main", cpu=empty, memory=Saved(0, {999: 1}, 1.0), first=0, last=0, count=0, now=NOW)
    assert len(model.aggregates) == 0


def test_garbage_is_what_nobody_heard_of_for_eight_days() -> None:
    model = Model()
    sample(model, with_pod(model, "a", WEB))
    with_pod(model, "silent", {"app": "quiet"})
    assert model.collect_garbage(now=NOW, has_controller={}) == []
    assert model.collect_garbage(now=NOW + timedelta(minutes=59), has_controller={}) is None
    dropped = model.collect_garbage(now=NOW + timedelta(days=8), has_controller={})
    assert dropped is not None
    assert len(dropped) == 2
    assert model.aggregate_count() == 0
    # The pods are still there: the next sample makes a new aggregate.
    sample(model, model.row(key("a"), "main", now=NOW), NOW + timedelta(days=9))
    assert model.aggregate_count() == 1


@pytest.mark.parametrize(
    ("phase", "controller", "stays"),
    [
        pytest.param("Running", False, True, id="a-running-pod-may-still-report"),
        pytest.param("Succeeded", True, True, id="its-controller-may-start-another"),
        pytest.param("Succeeded", False, False, id="nobody-will-ever-report"),
    ],
)
def test_an_aggregate_without_samples_stays_while_somebody_may_feed_it(
    phase: str, controller: bool, stays: bool
) -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    with_pod(model, "a", WEB, phase)
    model.collect_garbage(now=NOW, has_controller={state.key: controller})
    assert (model.aggregate_count() == 1) == stays


def test_a_silent_container_goes_although_pods_with_the_same_labels_stay() -> None:
    model = Model()
    with_pod(model, "a", WEB)
    with_pod(model, "b", WEB)
    model.set_container(key("b"), "helper", now=NOW)
    model.delete_pod(key("b"))
    dropped = model.collect_garbage(now=NOW, has_controller={})
    assert [one.container for one in dropped or ()] == ["helper"]
    assert model.aggregate_count() == 1


def job(number: int) -> dict[str, str]:
    return {**WEB, "job-name": f"run-{number}", "controller-uid": f"uid-{number}"}


def use(model: Model, row: int, minute: int, millis: int) -> None:
    at = np.array([microseconds(NOW + timedelta(minutes=minute))])
    model.containers.add_cpu(np.array([row]), at, np.array([millis]))
    model.containers.add_memory(np.array([row]), at, np.array([millis * 10**6]))


def test_pods_that_left_under_labels_of_their_own_are_kept_as_one_and_recommend_the_same() -> None:
    folding, plain = Model(), Model()
    for model in (folding, plain):
        state = model.set_vpa(vpa(), keep_history=False)
        for number in range(40):
            use(model, with_pod(model, f"p{number}", job(number)), number, 100 + 37 * number)
            model.delete_pod(key(f"p{number}"))
            if model is folding and number % 3 == 0:
                model.fold_departed(now=NOW)
        use(model, with_pod(model, "last", job(99)), 50, 900)
    freed = folding.fold_departed(now=NOW)
    assert len(freed) == 0
    assert (folding.aggregate_count(), plain.aggregate_count()) == (2, 41)
    found, expected = (recommend(model, [model.vpas[key("web")]], Options()) for model in (folding, plain))
    assert found == expected
    assert folding.vpas[key("web")].pod_count == 1
    saved, wanted = (checkpoints(m, [m.vpas[key("web")]], now=NOW)["shop/web"] for m in (folding, plain))
    assert (saved[0].first, saved[0].last, saved[0].count) == (wanted[0].first, wanted[0].last, wanted[0].count)
    assert saved[0].cpu.weights == wanted[0].cpu.weights
    assert saved[0].memory.total == pytest.approx(wanted[0].memory.total)
    assert state.pod_count == 1


def test_pods_that_a_vpa_selects_by_their_own_labels_are_kept_apart() -> None:
    model = Model()
    own = model.set_vpa(vpa(selector="controller-uid=uid-1"), keep_history=False)
    for number in range(3):
        sample(model, with_pod(model, f"p{number}", job(number)))
        model.delete_pod(key(f"p{number}"))
    model.fold_departed(now=NOW)
    # Two are folded into what they have in common; the one that the VPA selects stays as it is.
    assert model.aggregate_count() == 2
    assert model.aggregates.count[next(slot for _, slot in own.aggregates())] == 1
    sample(model, with_pod(model, "p1", job(1)), NOW + timedelta(minutes=1))
    assert [int(model.aggregates.count[slot]) for _, slot in own.aggregates()] == [2]


def test_a_pod_that_comes_back_before_it_is_folded_keeps_its_aggregate() -> None:
    model = Model()
    model.set_vpa(vpa(), keep_history=False)
    member = {**WEB, "statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}
    sample(model, with_pod(model, "web-0", member))
    model.delete_pod(key("web-0"))
    row = with_pod(model, "web-0", member)
    assert model.fold_departed(now=NOW) == []
    assert model.aggregates.count[model.containers.aggregate[row]] == 1
    model.delete_pod(key("web-0"))
    assert len(model.fold_departed(now=NOW)) == 1
    with_pod(model, "web-0", member)
    assert model.aggregate_count() == 2


def test_a_vpa_takes_its_tuning_with_it_and_an_older_one_replaces_it() -> None:
    model = Model()
    tuned = vpa("tuned", created=NOW)
    tuned.tunings = {"*": Tuning(oom_ratio=2.0)}
    model.set_vpa(tuned, keep_history=False)
    with_pod(model, "a", WEB)
    slot = next(slot for _, slot in tuned.aggregates())
    assert model.aggregates.oom_ratio[slot] == 2.0
    model.set_vpa(vpa("plain", created=NOW - timedelta(days=1)), keep_history=False)
    assert model.aggregates.oom_ratio[slot] == 1.2
    model.delete_vpa(key("plain"))
    model.delete_vpa(key("tuned"))
    assert model.aggregates.oom_ratio[slot] == 1.2


def test_the_oldest_vpa_decides_how_samples_are_weighed() -> None:
    model = Model()
    young, old = vpa("young", created=NOW), vpa("old", created=NOW - timedelta(days=1))
    old.tunings = {"*": Tuning(oom_ratio=2.0)}
    young.tunings = {"*": Tuning(oom_ratio=3.0)}
    for state in (young, old):
        model.set_vpa(state, keep_history=False)
    with_pod(model, "a", WEB)
    slot = next(slot for _, slot in old.aggregates())
    assert model.aggregates.oom_ratio[slot] == 2.0
    assert oldest([young, old]) is old
    assert oldest([]) is None


def test_another_half_life_continues_with_what_is_there() -> None:
    model = Model()
    state = model.set_vpa(vpa(), keep_history=False)
    row = with_pod(model, "a", WEB)
    sample(model, row)
    changed = vpa()
    changed.tunings = {"main": Tuning(cpu_half_life=timedelta(hours=1))}
    model.set_vpa(changed, keep_history=True)
    slot = next(slot for _, slot in state.aggregates())
    assert model.aggregates.cpu.half_life(slot) == timedelta(hours=1)
    sample(model, row, NOW + timedelta(hours=1))
    assert model.aggregates.count[slot] == 2
