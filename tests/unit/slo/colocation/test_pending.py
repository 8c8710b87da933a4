"""Profiles for pods that wait for a node, and for Reservations."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.api.values.codec import convert
from kubetide.slo.colocation.core.match import matching
from kubetide.slo.colocation.core.mutate import Mutation, noted, recorded
from kubetide.slo.colocation.core.pending import Steady, caught_up, managed, mutate_reservation, waits_for_a_node
from kubetide.slo.colocation.core.profile import ProfileError
from kubetide.slo.colocation.core.validate import violations

Raw = dict[str, Any]
CHOSEN = {"matchLabels": {"app": "crunch"}}


def profile(name: str = "late", *, label: str | None = "true", **spec: Any) -> ClusterColocationProfile:
    labels = {"config.koordinator.sh/controller-managed": label} if label is not None else {}
    meta = {"name": name, "labels": labels}
    return convert({"metadata": meta, "spec": {"selector": CHOSEN, **spec}}, ClusterColocationProfile)


def pod(**labels: str) -> Raw:
    return {"metadata": {"name": "p", "uid": "u1", "labels": {"app": "crunch", **labels}}, "spec": {"containers": []}}


def labels_after(given: Raw, *profiles: ClusterColocationProfile) -> dict[str, str]:
    found: dict[str, str] = caught_up(given, matching(profiles, given["metadata"]["labels"], {}))[0]["metadata"][
        "labels"
    ]
    return found


@pytest.mark.parametrize(
    ("given", "by_default", "taken"),
    [
        pytest.param(profile(), False, True, id="asks-for-it"),
        pytest.param(profile(label=None), False, False, id="does-not-ask"),
        pytest.param(profile(label=None), True, True, id="all-by-setting"),
        pytest.param(profile(label="yes"), False, False, id="only-true-counts"),
        pytest.param(profile(selector=None), True, False, id="without-a-selector-it-selects-nothing"),
        pytest.param(profile(selector={}), False, False, id="an-empty-selector-neither"),
    ],
)
def test_only_some_profiles_are_for_pods_that_exist(
    given: ClusterColocationProfile, by_default: bool, taken: bool
) -> None:
    assert bool(managed([given], by_default=by_default)) is taken


@pytest.mark.parametrize(
    ("spec", "status", "waits"),
    [
        ({}, {"phase": "Pending"}, True),
        ({"nodeName": "n"}, {"phase": "Pending"}, False),
        ({}, {"phase": "Running"}, False),
    ],
)
def test_a_pod_waits_until_a_node_is_chosen(spec: Raw, status: Raw, waits: bool) -> None:
    assert waits_for_a_node(convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)) is waits


def test_what_a_pod_that_exists_cannot_change_is_left_alone() -> None:
    given = profile(labels={"a": "b"}, qosClass="BE", priorityClassName="missing", schedulerName="other")
    changed, applied = caught_up(pod(), matching([given], {"app": "crunch"}, {}))
    assert changed["spec"] == {"containers": []}
    assert changed["metadata"]["labels"] == {"app": "crunch", "a": "b", "koordinator.sh/qosClass": "BE"}
    assert applied == ("late",)


def test_a_suffix_is_appended_once() -> None:
    given = profile(
        labels={"own": "x"},
        labelKeysMapping={"team": "copy"},
        labelSuffixes=dict.fromkeys(("team", "own", "copy"), "-night"),
    )
    first = labels_after(pod(team="a"), given)
    assert (first["team"], first["own"], first["copy"]) == ("a-night", "x-night", "a-night")
    again = labels_after({"metadata": {"uid": "u1", "labels": first}, "spec": {}}, given)
    assert again == first


def test_chance_is_the_same_for_a_pod_however_often_it_is_looked_at() -> None:
    draws = {Steady(f"uid-{n}/late").randrange(100) for n in range(500)}
    assert len(draws) > 90
    assert Steady("uid-1/late").randrange(100) == Steady("uid-1/late").randrange(100)
    half = profile(probability=50, labels={"a": "b"})
    hit = [
        n for n in range(200) if "a" in labels_after({**pod(), "metadata": {**pod()["metadata"], "uid": str(n)}}, half)
    ]
    assert 60 < len(hit) < 140


def test_a_reservation_follows_its_labels_whatever_the_namespaces() -> None:
    given = profile(
        namespaceSelector={"matchLabels": {"no": "where"}}, priorityClassName="koord-batch", labels={"a": "b"}
    )
    classes = {"koord-batch": convert({"metadata": {"name": "koord-batch"}, "value": 5500}, PriorityClass)}
    reservation = {"metadata": {"labels": {"app": "crunch"}}, "spec": {"ttl": "1h", "template": {"spec": {"x": 1}}}}
    changed, applied = mutate_reservation(reservation, [given], classes, Steady(""))
    assert applied == ("late",)
    assert changed["spec"]["template"]["spec"] == {"x": 1, "priorityClassName": "koord-batch", "priority": 5500}
    assert changed["metadata"]["labels"]["a"] == "b"
    assert mutate_reservation({"metadata": {}}, [given], classes, Steady("")) == ({"metadata": {}}, ())
    with pytest.raises(ProfileError, match="koord-batch"):
        mutate_reservation(reservation, [given], {}, Steady(""))


def test_a_note_grows_and_an_unreadable_one_is_replaced() -> None:
    once = recorded(Mutation(pod(), ("a",)))
    twice = recorded(Mutation(once, ("b", "a")))
    (text,) = twice["metadata"]["annotations"].values()
    assert noted(text) == ("a", "b")
    assert noted("{") == noted('{"a": 1}') == noted(None) == ()


def test_a_pending_pod_may_be_given_a_class_but_not_another_one() -> None:
    def made(**labels: str) -> Pod:
        named = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in labels.items()}
        meta = {"name": "p", "labels": {"koordinator.sh/priority-class": "koord-batch", **named}}
        return convert({"metadata": meta, "status": {"phase": "Pending"}}, Pod)

    assert violations(made(qosClass="BE"), made(), catches_up=True) == ()
    assert [v.rule for v in violations(made(qosClass="BE"), made())] == ["qos-class-immutable"]
    changed = violations(made(qosClass="BE"), made(qosClass="LS"), catches_up=True)
    assert [v.rule for v in changed] == ["qos-class-immutable"]
