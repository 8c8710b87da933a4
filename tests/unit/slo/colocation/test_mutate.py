"""What profiles make of a pod: order, chance, steps, resources; and what keeps a pod as it is."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.api.values.codec import convert, decode, encode
from kubetide.errors import DecodeError
from kubetide.slo.colocation.core.mutate import APPLIED, Mutation, Surroundings, mutate, recorded
from kubetide.slo.colocation.core.profile import ProfileError
from kubetide.slo.core.compat import parse_compat

Raw = dict[str, Any]

CLASSES = {
    name: convert({"metadata": {"name": name}, "value": value, **more}, PriorityClass)
    for name, value, more in (
        ("koord-batch", 5500, {"preemptionPolicy": "Never"}),
        ("koord-mid", 7500, {}),
        ("koord-prod", 9500, {}),
    )
}
BATCH: Raw = {"qosClass": "BE", "priorityClassName": "koord-batch"}
SKIPPING = {"config.koordinator.sh/skip-update-resources": ""}
SPEC = "node.koordinator.sh/extended-resource-spec"


def profile(name: str = "x", annotations: Raw | None = None, **spec: Any) -> ClusterColocationProfile:
    raw = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}
    return decode(encode(raw), ClusterColocationProfile)


def pod(resources: Raw | None = None, *, labels: Raw | None = None, annotations: Raw | None = None, **spec: Any) -> Raw:
    container = {"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, **(resources or {})}}
    meta = {"name": "p", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def admitted(
    given: Raw, *profiles: ClusterColocationProfile, version: str = "1.8", draw: int = 0, **around: Any
) -> Mutation:
    class Fixed:
        def randrange(self, stop: int, /) -> int:
            return draw

    surroundings = Surroundings(
        profiles=profiles,
        **{"namespace_labels": {"team": "a"}, "priority_classes": CLASSES, **around},
        compat=parse_compat(version),
    )
    return mutate(given, surroundings, Fixed())


def requests(mutation: Mutation) -> Raw:
    found: Raw = mutation.pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_a_batch_profile_makes_a_batch_pod() -> None:
    found = admitted(pod({"limits": {"cpu": "2"}}), profile(**BATCH))
    assert found.pod["metadata"]["labels"] == {"koordinator.sh/qosClass": "BE"}
    spec = found.pod["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("koord-batch", 5500, "Never")
    assert requests(found) == {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    noted = json.loads(found.pod["metadata"]["annotations"][SPEC])
    assert noted["containers"]["main"]["limits"] == {"kubernetes.io/batch-cpu": "2k"}
    assert found.applied == ("x",)


def test_a_pod_that_no_profile_is_for_stays_as_it_is() -> None:
    given = pod(priority=5500)
    assert admitted(given, profile(selector={"matchLabels": {"app": "other"}}, **BATCH)).pod == given


def test_a_request_is_made_of_a_limit_that_stands_alone() -> None:
    found = admitted(pod({"requests": {}, "limits": {"cpu": "100m", "memory": "1Mi"}}), profile(**BATCH))
    assert requests(found) == {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "1Mi"}


def test_init_containers_and_overhead_are_translated_but_not_listed() -> None:
    init = [{"name": "init", "resources": {"requests": {"cpu": "1"}}}]
    found = admitted(pod(initContainers=init, overhead={"cpu": "10m"}), profile(priorityClassName="koord-mid"))
    assert found.pod["spec"]["initContainers"][0]["resources"]["requests"] == {"kubernetes.io/mid-cpu": "1k"}
    assert found.pod["spec"]["overhead"] == {"kubernetes.io/mid-cpu": "10"}
    assert SPEC not in found.pod["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("profiles", "around"),
    [
        pytest.param([profile(priorityClassName="koord-prod")], {}, id="prod"),
        pytest.param([profile(**BATCH)], {"skip_resources": True}, id="gate"),
        pytest.param(
            [
                profile(annotations={"config.koordinator.sh/skip-update-resources": ""}, probability=0),
                profile("y", **BATCH),
            ],
            {},
            id="annotation-of-a-profile-that-chance-left-out",
        ),
    ],
)
def test_resources_stay_where_they_should(profiles: list[ClusterColocationProfile], around: Raw) -> None:
    assert requests(admitted(pod(), *profiles, **around)) == {"cpu": "1500m", "memory": "1Gi"}


def test_profiles_apply_by_name_and_later_ones_overwrite() -> None:
    both = profile("b", labels={"l": "b"}), profile("a", labels={"l": "a"})
    assert admitted(pod(), *both).pod["metadata"]["labels"]["l"] == "b"
    assert admitted(pod(), *both).applied == ("a", "b")
    assert admitted(pod(), *both, version="1.6").pod["metadata"]["labels"]["l"] == "a", "before 1.7 as they are listed"


def test_labels_that_a_profile_sets_select_no_other() -> None:
    found = admitted(pod(), profile("a", labels={"l": "1"}), profile("b", selector={"matchLabels": {"l": "1"}}))
    assert found.applied == ("a",)


@pytest.mark.parametrize(
    ("probability", "draw", "hit"),
    [
        (50, 49, True),
        ("50%", 50, False),
        (0, 0, False),
        (100, 99, True),
        (-1, 0, False),
        (150, 99, True),
        (None, 99, True),
    ],
)
def test_chance_is_below_the_percentage(probability: int | str | None, draw: int, hit: bool) -> None:
    assert bool(admitted(pod(), profile(probability=probability), draw=draw).applied) is hit


@pytest.mark.parametrize("text", ["33.5%", "50", "half", "%", " 5%"])
def test_a_probability_that_cannot_be_read_refuses_the_pod(text: str) -> None:
    with pytest.raises(ProfileError, match=r"ClusterColocationProfile x.*probability"):
        admitted(pod(), profile(probability=text))


def test_copies_read_what_was_there_and_a_missing_key_writes_nothing() -> None:
    chained = profile(labelKeysMapping={"a": "b", "b": "c", "no": "n"}, labelSuffixes={"a": "-x", "no": "-y"})
    found = admitted(pod(labels={"a": "1", "b": "2"}), chained)
    assert found.pod["metadata"]["labels"] == {"a": "1-x", "b": "1", "c": "2"}
    assert admitted(pod(labels={"a": "1"}), chained, version="1.6").pod["metadata"]["labels"] == {"a": "1", "b": "1"}


def test_a_patch_merges_by_strategy_and_null_removes() -> None:
    patch = {"metadata": {"labels": {"a": None}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    found = admitted(pod(labels={"a": "1"}), profile(patch=patch)).pod
    assert "a" not in found["metadata"]["labels"]
    assert found["spec"]["containers"][0]["image"] == "x"
    assert found["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"


@pytest.mark.parametrize("patch", [[], {"spec": {"containers": "x"}}, {"spec": {"priority": "high"}}])
def test_a_patch_that_makes_no_pod_refuses_it(patch: Any) -> None:
    with pytest.raises(ProfileError, match=r"spec\.patch"):
        admitted(pod(), profile(patch=patch))


def test_a_missing_priority_class_refuses_the_pod() -> None:
    with pytest.raises(ProfileError, match="PriorityClass 'gone' does not exist"):
        admitted(pod(), profile(priorityClassName="gone"))


def test_the_preemption_policy_follows_the_class_from_1_6_on() -> None:
    mid = profile(priorityClassName="koord-mid")
    assert "preemptionPolicy" not in admitted(pod(preemptionPolicy="Never"), mid).pod["spec"]
    assert admitted(pod(preemptionPolicy="Never"), mid, version="1.5").pod["spec"]["preemptionPolicy"] == "Never"


@pytest.mark.parametrize(
    ("selector", "namespace"),
    [
        pytest.param({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]}, {}, id="selector"),
        pytest.param({"matchLabels": {"team": "a"}}, None, id="unknown-namespace"),
    ],
)
def test_a_profile_that_cannot_be_judged_is_not_applied_but_reported(selector: Raw, namespace: Raw | None) -> None:
    found = admitted(pod(), profile(namespaceSelector=selector, **BATCH), namespace_labels=namespace)
    assert (found.applied, [problem.profile for problem in found.problems]) == ((), ["x"])


def test_an_empty_selector_needs_no_namespace() -> None:
    assert admitted(pod(), profile(namespaceSelector={}, **BATCH), namespace_labels=None).applied == ("x",)


def test_an_old_annotation_is_corrected_and_an_unreadable_one_refuses_the_pod() -> None:
    old = json.dumps({"containers": {"gone": {"limits": {"kubernetes.io/batch-cpu": "1"}}}})
    assert admitted(pod(annotations={SPEC: old})).pod["metadata"]["annotations"][SPEC] == "{}"
    with pytest.raises(DecodeError):
        admitted(pod(annotations={SPEC: "{"}))


def test_what_was_applied_is_noted_on_the_pod() -> None:
    noted = recorded(admitted(pod(), profile("a"), profile("b", probability=0)))
    assert noted["metadata"]["annotations"][APPLIED] == '["a"]'
    untouched = admitted(pod())
    assert recorded(untouched) is untouched.pod


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.sampled_from(["koord-batch", "koord-mid"]))
def test_translation_keeps_amounts_and_happens_once(cpu: int, memory: int, priority: str) -> None:
    given_pod = pod({"requests": {"cpu": f"{cpu}u", "memory": str(memory)}})
    chosen = profile(priorityClassName=priority)
    once = admitted(given_pod, chosen)
    tier = priority.removeprefix("koord-")
    found = requests(once)
    assert set(found) == {f"kubernetes.io/{tier}-cpu", f"kubernetes.io/{tier}-memory"}
    again = mutate(
        once.pod,
        Surroundings(profiles=[chosen], namespace_labels={}, priority_classes=CLASSES),
        random.Random(0),
    )
    assert again.pod == once.pod
