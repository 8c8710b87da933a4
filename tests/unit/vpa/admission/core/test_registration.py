"""Whom the API server asks, about what."""

from typing import Any

import pytest

from kubetide.api.objects.admission import RegistrationCheck, replacement, same_webhooks
from kubetide.api.values.selectors import parse_selector
from kubetide.vpa.admission.core.registration import (
    ConditionTrial,
    Registration,
    conditions,
    configuration,
    made_by_another,
    parse_labels,
    probe_namespace,
)

SERVICE = {"service": {"namespace": "kube-system", "name": "vpa-webhook"}}


def hooks(**given: Any) -> dict[str, dict[str, Any]]:
    made = configuration(Registration(client=SERVICE, **given))
    return {hook["name"]: hook for hook in made["webhooks"]}


def values(hook: dict[str, Any]) -> tuple[str, list[str]]:
    (expression,) = hook["namespaceSelector"]["matchExpressions"]
    return expression["operator"], expression["values"]


def test_failures_are_ignored_and_the_wait_is_short() -> None:
    for hook in hooks().values():
        assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 5, "None")


def test_the_own_namespace_is_exempt_for_pods_only_where_a_failure_would_stop_them() -> None:
    found = hooks(own_namespace="kube-system", fail_closed=True)
    assert values(found["vpa.k8s.io"]) == ("NotIn", ["kube-system"])
    assert found["vpas.vpa.k8s.io"]["namespaceSelector"] == {}
    for hook in hooks(own_namespace="kube-system").values():
        assert hook["namespaceSelector"] == {}


def test_ignored_namespaces_are_left_out_and_a_chosen_one_is_the_only_one() -> None:
    assert values(hooks(ignored_namespaces=["b", "a"])["vpa.k8s.io"]) == ("NotIn", ["a", "b"])
    assert values(hooks(only_namespace="shop")["vpas.vpa.k8s.io"]) == ("In", ["shop"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "default", id="where-it-is-told"),
        pytest.param({"only": "shop"}, "shop", id="in-the-only-namespace-that-is-served"),
        pytest.param({"only": "shop", "exempt": ("shop",)}, "shop", id="even-if-that-would-be-exempt"),
        pytest.param({"exempt": ("default", "x")}, None, id="not-where-pods-are-exempt"),
    ],
)
def test_a_probe_goes_where_the_webhook_is_asked(given: dict[str, Any], expected: str | None) -> None:
    where = {"only": "", "exempt": (), **given}
    assert probe_namespace("default", **where) == expected


def test_conditions_name_namespaces_and_labels() -> None:
    controlled, selected = conditions([("shop", parse_selector("app=web,tier in (a,b)"))])
    assert "ownerReferences" in controlled["expression"]
    assert 'request.namespace == "shop"' in selected["expression"]
    assert 'object.metadata.labels["app"] == "web"' in selected["expression"]
    assert "tier" not in selected["expression"]


def test_many_selectors_become_namespaces_and_very_many_become_nothing() -> None:
    many = [(f"ns-{n % 7}", parse_selector(f"app=web-{n}")) for n in range(500)]
    assert "request.namespace in [" in conditions(many)[1]["expression"]
    assert len(conditions([(f"namespace-{n}", parse_selector("app=web")) for n in range(5000)])) == 1


def test_no_vpa_means_no_pod_but_our_own_probe() -> None:
    assert conditions([])[1]["expression"].endswith("|| false")


def test_what_the_server_adds_is_no_difference() -> None:
    wanted = configuration(Registration(client=SERVICE, conditions=conditions([])))
    stored = {"webhooks": [{**hook, "extra": 1} for hook in wanted["webhooks"]]}
    assert same_webhooks(stored, wanted)
    assert not same_webhooks(stored, configuration(Registration(client=SERVICE)))
    assert not same_webhooks({}, wanted)


def test_labels_that_are_missing_are_added_beside_those_of_others() -> None:
    wanted = configuration(Registration(client=SERVICE, labels={"team": "a"}))
    theirs = {"resourceVersion": "7", "labels": {"owner": "x"}, "annotations": {"note": "y"}}
    stored = {**wanted, "metadata": theirs}
    assert not same_webhooks(stored, wanted)
    made = replacement(stored, wanted)
    assert made["metadata"] == {
        "name": "vpa-webhook-config",
        "resourceVersion": "7",
        "labels": {"owner": "x", "team": "a"},
        "annotations": {"note": "y"},
    }
    assert same_webhooks(made, wanted)


@pytest.mark.parametrize(("text", "expected"), [("", {}), ("a:b", {"a": "b"}), ("a:b, c:d", {"a": "b", "c": "d"})])
def test_labels_come_as_pairs(text: str, expected: dict[str, str]) -> None:
    assert parse_labels(text) == expected


@pytest.mark.parametrize(
    ("probes", "used", "convicted"),
    [
        pytest.param([True] * 9, True, False, id="they-work"),
        pytest.param([False, False, True] * 3, True, False, id="a-hiccup"),
        pytest.param([False] * 3, False, False, id="doubt"),
        pytest.param([False] * 4 + [True, False, False, False], False, True, id="without-them-it-works"),
        pytest.param([False] * 6 + [True], True, False, id="the-fault-lies-elsewhere"),
        pytest.param([False] * 60, True, False, id="and-stays-there"),
    ],
)
def test_conditions_are_judged_by_trying(probes: list[bool], used: bool, convicted: bool) -> None:
    trial = ConditionTrial(wanted=True)
    for patched in probes:
        trial.probed(patched)
    assert (trial.used, trial.convicted) == (used, convicted)


@pytest.mark.parametrize(
    ("known", "uid", "names", "displaced"),
    [
        pytest.param("", "u2", ["vpa.k8s.io"], False, id="taken-over-at-the-start"),
        pytest.param("u1", "u1", ["vpa.k8s.io"], False, id="edited"),
        pytest.param("u1", "u2", ["vpa.k8s.io"], True, id="made-anew-by-another-admission-controller"),
        pytest.param("u1", "u2", ["vpa.k8s.io", "vpas.vpa.k8s.io"], False, id="made-anew-by-another-replica"),
    ],
)
def test_a_configuration_that_another_admission_controller_made_anew_is_left_to_it(
    known: str, uid: str, names: list[str], displaced: bool
) -> None:
    current = {"metadata": {"uid": uid}, "webhooks": [{"name": name} for name in names]}
    assert made_by_another(current, known=known) is displaced


def test_a_configuration_is_compared_again_when_it_or_what_is_wanted_changes() -> None:
    wanted = configuration(Registration(client=SERVICE))
    meta = {"uid": "u", "resourceVersion": "1"}
    check = RegistrationCheck()
    assert check.same({**wanted, "metadata": meta}, wanted)
    # The same version has the same content, however it was read.
    assert check.same({"metadata": meta, "webhooks": []}, configuration(Registration(client=SERVICE)))
    assert not check.same(
        {"metadata": meta, "webhooks": []}, configuration(Registration(client=SERVICE, ca_bundle="x"))
    )
    assert not check.same({"metadata": meta, "webhooks": []}, wanted)
    assert check.same({**wanted, "metadata": {**meta, "resourceVersion": "2"}}, wanted)
    assert not check.same({"metadata": {**meta, "resourceVersion": "3"}, "webhooks": []}, wanted)
    assert not check.same({"metadata": {}, "webhooks": []}, wanted)
