"""Which VPA a pod belongs to. The golden vectors cover the combinations."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectMeta
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.testing.builders import make_pod
from kubetide.vpa.core.matching import Candidate, controlling, pod_owner
from kubetide.vpa.updater.core.budget import Creator, creator_of

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def candidate(name: str, *, days: int = 0, selector: str = "app=web", **given: Any) -> Candidate:
    target = convert({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, CrossVersionObjectReference)
    values = {"namespace": "shop", "target": target, **given}
    return Candidate(name=name, created=NOW - timedelta(days=days), selector=parse_selector(selector), **values)


def chosen(*candidates: Candidate, kind: str = "Deployment", name: str = "web") -> str | None:
    found = controlling(candidates, namespace="shop", labels={"app": "web"}, kind=kind, name=name)
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(candidate("vpa"), "vpa", id="all-of-it-fits"),
        pytest.param(candidate("vpa", selector="app=other"), None, id="other-labels"),
        pytest.param(candidate("vpa", namespace="bank"), None, id="other-namespace"),
        pytest.param(candidate("vpa", target=None), None, id="no-target"),
        pytest.param(
            candidate(
                "vpa",
                target=convert(
                    {"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": "web"}, CrossVersionObjectReference
                ),
            ),
            "vpa",
            id="another-version-of-the-target",
        ),
    ],
)
def test_labels_and_the_topmost_controller_must_fit(one: Candidate, expected: str | None) -> None:
    assert chosen(one) == expected
    assert chosen(one, kind="StatefulSet") is None
    assert chosen(one, name="api") is None


def test_the_oldest_vpa_wins_and_then_the_smaller_name() -> None:
    assert chosen(candidate("a"), candidate("z", days=1)) == "z"
    assert chosen(candidate("b"), candidate("a"), candidate("c")) == "a"


def test_of_two_controlling_owners_the_last_is_matched_and_the_first_has_the_budget() -> None:
    raw = make_pod("web-1", "shop")
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "first", "uid": "1", "controller": True},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "last", "uid": "2", "controller": True},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "no-controller", "uid": "3", "controller": False},
    ]
    pod = convert(raw, Pod)
    owner = pod_owner(pod.metadata)
    assert owner is not None
    assert owner.name == "last"
    assert creator_of(pod) == Creator("shop", "ReplicaSet", "first")
    assert pod_owner(ObjectMeta(name="lonely")) is None
