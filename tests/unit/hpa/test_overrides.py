"""What annotations ask for: dry run, period, rollouts, fallback, and who manages the object."""

from datetime import timedelta

import pytest

from kubetide.api.objects.core import Lease
from kubetide.api.objects.hpa import ManagedFieldsEntry
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.values.codec import convert
from kubetide.hpa.core.annotations import Fallback, Overrides, overrides_of, same_overrides
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.evaluate import TargetState, evaluate
from kubetide.hpa.core.observation import Memory
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.hpa.core.replicas import Tolerance, rollout_pods
from kubetide.hpa.core.samples import ErrorKind, MetricFailure
from kubetide.hpa.core.stabilization import Recommendation
from kubetide.hpa.core.takeover import Signs, Stance, lease_is_fresh, stance, stance_notes, wrote_lately
from unit.hpa.worlds import CPU_50, NOW, QUEUE, ago, hpa, metric, observation, pod, pods, reading, turn, value

AWAY = MetricFailure(ErrorKind.FETCH_FAILED, "away")


def test_annotations_are_understood() -> None:
    found = overrides_of(
        {
            "kubetide.io/managed-by": "kubetide",
            "kubetide.io/hpa-dry-run": "true",
            "kubetide.io/hpa-sync-period": "5s",
            "kubetide.io/hpa-rollout-aware": "yes",
            "kubetide.io/hpa-fallback": "last-known-good",
            "kubetide.io/hpa-fallback-max-age": "3m",
        }
    )
    assert found == Overrides(
        managed_by="kubetide",
        dry_run=True,
        sync_period=timedelta(seconds=5),
        rollout_aware=True,
        fallback=Fallback(max_age=timedelta(minutes=3)),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kubetide.io/hpa-sync-period", "often"),
        ("kubetide.io/hpa-sync-period", "10ms"),
        ("kubetide.io/hpa-sync-period", "2h"),
        ("kubetide.io/hpa-rollout-aware", "maybe"),
        ("kubetide.io/hpa-fallback", "many"),
        ("kubetide.io/hpa-fallback", "-3"),
    ],
)
def test_what_cannot_be_understood_is_named_and_has_no_effect(name: str, value: str) -> None:
    found = overrides_of({name: value})
    assert len(found.problems) == 1
    assert name in found.problems[0]
    assert found == Overrides(problems=found.problems)


def test_a_misspelt_dry_run_is_still_dry() -> None:
    assert overrides_of({"kubetide.io/hpa-dry-run": "ture"}).dry_run is True


def test_only_our_annotations_are_worth_a_reconcile() -> None:
    mine = {"a": "b", "kubetide.io/x": "y"}
    assert same_overrides(mine, {**mine, "a": "c"})
    assert same_overrides(None, {})
    assert not same_overrides(mine, {**mine, "kubetide.io/x": "z"})
    assert not same_overrides(mine, None)


@pytest.mark.parametrize(
    ("overrides", "signs", "take_over", "acts", "warns"),
    [
        pytest.param(Overrides(), Signs(), False, True, False, id="nobody-else"),
        pytest.param(Overrides(), Signs(runs="lease"), False, False, True, id="its-lease-is-held"),
        pytest.param(Overrides(), Signs(wrote="status"), False, False, True, id="it-wrote-lately"),
        pytest.param(Overrides(), Signs(runs="lease"), True, True, False, id="told-to-take-over"),
        pytest.param(Overrides(), Signs(wrote="status"), True, True, True, id="a-fight-is-told"),
        pytest.param(Overrides(managed_by="kubetide"), Signs(runs="lease"), False, True, False, id="annotated"),
        pytest.param(Overrides(managed_by="keda"), Signs(), True, False, False, id="left-to-somebody-else"),
        pytest.param(Overrides(dry_run=True), Signs(), True, False, False, id="dry-run"),
    ],
)
def test_two_never_act_at_once(overrides: Overrides, signs: Signs, take_over: bool, acts: bool, warns: bool) -> None:
    found = stance(overrides, signs, take_over=take_over, dry_run=False)
    assert (found.acts, found.warn) == (acts, warns)


def test_an_annotation_can_end_the_dry_run_of_the_cluster_for_one() -> None:
    assert not stance(Overrides(), Signs(), take_over=False, dry_run=True).acts
    assert stance(Overrides(dry_run=False), Signs(), take_over=False, dry_run=True).acts


def test_marks_of_the_built_in_controller_fade() -> None:
    def entry(manager: str, subresource: str, seconds: float) -> list[ManagedFieldsEntry]:
        return [ManagedFieldsEntry(manager=manager, subresource=subresource, time=ago(seconds))]

    period = timedelta(seconds=15)
    built_in = "kube-controller-manager"
    assert wrote_lately(entry(built_in, "status", 44), "status", sync_period=period, now=NOW)
    assert not wrote_lately(entry(built_in, "status", 45), "status", sync_period=period, now=NOW)
    assert not wrote_lately(entry(built_in, "scale", 1), "status", sync_period=period, now=NOW)
    assert not wrote_lately(entry("kubetide-hpa", "status", 1), "status", sync_period=period, now=NOW)
    assert not wrote_lately(None, "status", sync_period=period, now=NOW)


def test_the_notes_count_where_it_does_not_act_or_not_alone() -> None:
    acting, looking = Stance(acts=True), Stance(acts=False, warn=True, why="the lease is held by node-1")
    fighting = Stance(acts=True, warn=True, why="it wrote the scale of Deployment web lately")
    dry = stance(Overrides(dry_run=True), Signs(), take_over=False, dry_run=False)
    left = stance(Overrides(managed_by="somebody"), Signs(runs="x"), take_over=True, dry_run=True)
    assert stance_notes(()) == stance_notes((acting, acting)) == ()
    first, second, third, fourth = stance_notes((acting, looking, looking, fighting, dry, left))
    assert first.startswith("2 of 6 autoscalers: looks and does not act")
    assert "--take-over" in first
    assert "--controllers=*,-horizontal-pod-autoscaler-controller" in first
    assert second.startswith("1 of 6 autoscalers: acts as told to, but the built-in controller writes too")
    assert third == "1 of 6 autoscalers: computes and writes nothing: dry run"
    assert fourth == "1 of 6 autoscalers: leaves it to another controller, by annotation"
    assert not any(name in note for note in (first, second, third, fourth) for name in ("web", "node-1", "somebody"))


def test_a_lease_is_fresh_for_its_own_duration() -> None:
    def lease(seconds: int, holder: str = "node-1") -> Lease:
        renewed = ago(seconds).isoformat()
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        return convert({"spec": spec}, Lease)

    assert lease_is_fresh(lease(14), now=NOW)
    assert not lease_is_fresh(lease(16), now=NOW)
    assert not lease_is_fresh(lease(1, holder=""), now=NOW)
    assert not lease_is_fresh(Lease(), now=NOW)


def test_there_is_no_rollout_without_more_pods_or_owners() -> None:
    assert rollout_pods(pods(3), 3, now=NOW) == frozenset()


def test_surge_warming_and_terminating_pods_belong_to_a_rollout() -> None:
    running = [
        *pods(3, changed=ago(3600)),
        pod("web-new", owner="rs-2", started=ago(300), changed=ago(200)),
        pod("web-warm", owner="rs-2", started=ago(50), changed=ago(20)),
        pod("web-gone", deleting=True),
    ]
    assert rollout_pods(running, 3, now=NOW) == {"web-new", "web-warm", "web-gone"}


def proposal(running: list[object], found: object, passed: frozenset[str], replicas: int) -> int:
    target = TargetState(replicas=replicas, observed=replicas, pods=running, passed_over=passed)  # type: ignore[arg-type]
    rules = ReadinessRules()
    result = evaluate(metric(CPU_50), found, target, Tolerance(), rules, now=NOW, compat=HpaCompat())  # type: ignore[arg-type]
    assert result.proposal is not None
    return result.proposal.replicas


def test_a_rollout_can_only_hold_back() -> None:
    running: list[object] = list(pods(6))
    hot = reading(50, 50, 50, 50, 400, 400)
    surge = frozenset({"web-4", "web-5"})
    assert proposal(running, hot, frozenset(), 4) == 20
    assert proposal(running, hot, surge, 4) == 4
    assert proposal(running, reading(30, 30, 30, 30, 10, 10), surge, 4) == 3
    assert proposal(running, reading(10, 10, 10, 10, 60, 60), surge, 4) == 4
    assert proposal(running, reading(50, 50, 50, 50, 50, 50), surge, 4) == 4


def with_fallback(fallback: Fallback, current: int, answer: object, memory: Memory) -> tuple[int, Memory]:
    seen = observation(hpa(metrics=[QUEUE], maximum=30), current, [answer], fallback=fallback)  # type: ignore[list-item]
    decision = turn(seen, memory)
    return decision.desired, conclude(decision).memory


def test_a_fixed_fallback_raises_and_never_lowers() -> None:
    empty = Memory(recommendations=())
    assert with_fallback(Fallback(count=5), 3, AWAY, empty)[0] == 5
    assert with_fallback(Fallback(count=2), 3, AWAY, empty)[0] == 3


def test_the_last_known_good_proposal_stands_in_while_it_is_young() -> None:
    fallback = Fallback(max_age=timedelta(minutes=5))
    desired, memory = with_fallback(fallback, 4, value(60_000), Memory(recommendations=()))
    assert desired == 6
    assert with_fallback(fallback, 4, AWAY, memory)[0] == 6
    key = next(iter(memory.last_good))
    stale = Memory(recommendations=(), last_good={key: Recommendation(6, ago(301))})
    assert with_fallback(fallback, 4, AWAY, stale)[0] == 4


def test_without_a_fallback_a_failure_stays_a_failure() -> None:
    decision = turn(observation(hpa(metrics=[QUEUE]), 4, [AWAY]))
    assert decision.problem is not None
