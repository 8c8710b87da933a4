"""Which VPAs a namespace gets: by label, with exclusions, and never at the cost of somebody else's."""

from typing import Any

import msgspec
import pytest

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectMeta, OwnerReference
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.selectors import parse_selector
from kubetide.testing.builders import make_hpa
from kubetide.vpa.policies.core.plan import (
    LABEL,
    MADE_BY,
    RESOURCE_POLICY,
    Observation,
    Plan,
    Rules,
    TargetWorkload,
    differ,
    plan,
    vpa_for,
    vpa_name,
)

Raw = dict[str, Any]


def workload(name: str = "web", kind: str = "Deployment", **meta: Any) -> TargetWorkload:
    return TargetWorkload("apps/v1", kind, ObjectMeta(name=name, namespace="shop", **meta))


def typed(raw: Raw) -> VerticalPodAutoscaler:
    return msgspec.convert(raw, VerticalPodAutoscaler)


def foreign(name: str = "own", target: TargetWorkload | None = None) -> VerticalPodAutoscaler:
    raw = vpa_for(target or workload())
    return typed({**raw, "metadata": {"name": name, "namespace": "shop"}})


def decided(
    label: str | None = "Off",
    *targets: TargetWorkload,
    vpas: tuple[VerticalPodAutoscaler, ...] = (),
    rules: Rules | None = None,
    annotations: dict[str, str] | None = None,
    hpas: tuple[HorizontalPodAutoscaler, ...] = (),
    unreadable: frozenset[str] = frozenset(),
) -> Plan:
    labels = {"team": "shop", **({LABEL: label} if label is not None else {})}
    namespace = ObjectMeta(name="shop", labels=labels, annotations=annotations)
    seen = Observation(namespace=namespace, targets=targets, vpas=vpas, hpas=hpas, unreadable=unreadable)
    return plan(seen, rules or Rules())


def names(made: Plan) -> list[str]:
    return [each["metadata"]["name"] for each in made.create]


@pytest.mark.parametrize(
    ("label", "mode"),
    [("Off", "Off"), ("off", "Off"), ("true", "Off"), ("initial", "Initial"), ("InPlace", "InPlace")],
)
def test_a_label_gives_every_workload_a_vpa_in_its_mode(label: str, mode: str) -> None:
    made = decided(label, workload(), workload("db", "StatefulSet"))
    assert names(made) == ["web-deployment", "db-statefulset"]
    assert {each["spec"]["updatePolicy"]["updateMode"] for each in made.create} == {mode}
    assert made.create[0]["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    again = decided(label, workload(), workload("db", "StatefulSet"), vpas=tuple(map(typed, made.create)))
    assert again == Plan()


def test_a_selector_chooses_namespaces_and_the_label_wins() -> None:
    rules = Rules(selector=parse_selector("team=shop"), mode="Initial")
    assert [each["spec"]["updatePolicy"] for each in decided(None, workload(), rules=rules).create] == [
        {"updateMode": "Initial"}
    ]
    assert decided("disabled", workload(), rules=rules) == Plan()
    ignoring = Rules(selector=rules.selector, ignored=frozenset({"shop"}))
    assert decided("Off", workload(), rules=ignoring) == Plan()
    assert decided(None, workload()) == Plan()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (workload(labels={LABEL: "disabled"}), "excluded by its label kubetide.io/vpa=disabled"),
        (workload(labels={LABEL: "sometimes"}), "its label kubetide.io/vpa=sometimes is none of Off"),
        (
            workload("web-1", "ReplicaSet", owner_references=(OwnerReference(kind="Deployment", controller=True),)),
            "its owner is sized",
        ),
    ],
    ids=["excluded", "mistyped", "owned"],
)
def test_an_exclusion_has_a_reason_and_takes_its_vpa_away(target: TargetWorkload, reason: str) -> None:
    mine = typed(vpa_for(target))
    made = decided("Off", target, vpas=(mine,))
    assert made.create == ()
    assert [each.metadata.name for each in made.delete] == [mine.metadata.name]
    assert made.skipped[0].reason.startswith(reason)


def test_a_workload_chooses_another_mode_than_its_namespace() -> None:
    (made,) = decided("Off", workload(labels={LABEL: "Initial"})).create
    assert made["spec"]["updatePolicy"]["updateMode"] == "Initial"


def test_vpas_of_others_are_left_alone_and_replace_ours() -> None:
    theirs, mine = foreign(), typed(vpa_for(workload()))
    made = decided("Off", workload(), vpas=(theirs, mine))
    assert made.create == ()
    assert made.delete == (mine,)
    assert made.skipped[0].reason == "VPA own aims at it already"
    assert decided("disabled", workload(), vpas=(theirs,)) == Plan()
    named = foreign("web-deployment", workload("other"))
    taken = decided("Off", workload(), vpas=(named,))
    assert (taken.create, taken.change, taken.delete) == ((), (), ())


def test_whoever_takes_the_label_away_keeps_the_vpa() -> None:
    raw = vpa_for(workload())
    del raw["metadata"]["labels"]
    made = decided("disabled", workload(), vpas=(typed(raw),))
    assert made == Plan()


def test_another_mode_or_policy_changes_what_was_made() -> None:
    policy = '{"containerPolicies": [{"containerName": "*", "maxAllowed": {"cpu": "2"}}]}'
    raw = vpa_for(workload(), policy={"podPolicy": {}})
    ((name, change),) = decided("Initial", workload(), vpas=(typed(raw),), annotations={RESOURCE_POLICY: policy}).change
    after = MergePatch(change).apply(raw)
    assert name == "web-deployment"
    assert after["spec"]["updatePolicy"] == {"updateMode": "Initial"}
    assert after["spec"]["resourcePolicy"] == msgspec.json.decode(policy)
    assert after["spec"]["targetRef"] == raw["spec"]["targetRef"]
    ((_, back),) = decided("Initial", workload(), vpas=(typed(after),)).change
    assert "resourcePolicy" not in MergePatch(back).apply(after)["spec"]


def test_a_mode_that_acts_is_held_where_an_hpa_scales() -> None:
    hpa = msgspec.convert(make_hpa("web", namespace="shop", target="web", cpu_percent=50), HorizontalPodAutoscaler)
    made = decided("Recreate", workload(), hpas=(hpa,))
    assert made.create[0]["spec"]["updatePolicy"]["updateMode"] == "Off"
    assert made.skipped[0].reason == "mode Off instead of Recreate: HPA web scales it"


@pytest.mark.parametrize(
    ("label", "annotations", "unreadable", "problem"),
    [
        ("maybe", None, frozenset(), "the label kubetide.io/vpa=maybe is none of"),
        ("Off", {RESOURCE_POLICY: '{"a": ' + "[" * 20_000}, frozenset(), "is not a resourcePolicy"),
        ("Off", {RESOURCE_POLICY: "{"}, frozenset(), "the annotation kubetide.io/vpa-resource-policy is not"),
        ("Off", {RESOURCE_POLICY: '{"containerPolicies": 3}'}, frozenset(), "is not a resourcePolicy"),
        ("Off", None, frozenset({"odd"}), "VPA odd cannot be read"),
    ],
    ids=["label", "nested-too-deep", "not-json", "not-a-policy", "unreadable-vpa"],
)
def test_a_mistake_writes_nothing_and_is_named(
    label: str, annotations: dict[str, str] | None, unreadable: frozenset[str], problem: str
) -> None:
    mine = typed(vpa_for(workload("gone")))
    made = decided(label, workload(), vpas=(mine,), annotations=annotations, unreadable=unreadable)
    assert problem in made.problem
    assert (made.create, made.change, made.delete, made.orphans) == ((), (), (), ())


def test_what_nobody_asks_for_any_more_is_an_orphan_first() -> None:
    mine = typed(vpa_for(workload("gone")))
    assert decided("Off", vpas=(mine,)).orphans == (mine,)
    assert decided(None, workload("gone"), vpas=(mine,)).orphans == (mine,)
    assert decided("disabled", workload("gone"), vpas=(mine,)).delete == (mine,)
    assert plan(Observation(namespace=None, vpas=(mine,)), Rules()) == Plan()


def test_names_are_apart_and_short_enough() -> None:
    long = [vpa_name(workload("x" * 250 + end)) for end in ("a", "b")]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 253
    assert vpa_for(workload())["metadata"]["labels"] == dict((MADE_BY,))


def hpa(**changed: Any) -> HorizontalPodAutoscaler:
    return msgspec.convert(make_hpa("web", namespace="shop") | changed, HorizontalPodAutoscaler)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(hpa(status={"currentReplicas": 3}), False, id="status"),
        pytest.param(hpa(spec=make_hpa("web", target="other")["spec"]), True, id="spec"),
        pytest.param(hpa(metadata={"name": "web", "namespace": "shop", "uid": "2"}), True, id="made-anew"),
        pytest.param(hpa(metadata={"name": "web", "namespace": "shop", "resourceVersion": "2"}), False, id="version"),
        pytest.param(hpa(metadata={"name": "web", "namespace": "shop", "labels": {LABEL: "Off"}}), True, id="label"),
    ],
)
def test_a_status_does_not_change_a_plan(new: HorizontalPodAutoscaler, expected: bool) -> None:
    assert differ(hpa(metadata={"name": "web", "namespace": "shop"}), new) is expected
