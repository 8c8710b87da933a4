"""Whose pods, and which samples: both found by label without looking at everything."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.hpa.core.claims import MOST_LABELS, MOST_TEXT, Claims, anchors, narrowed
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.quick.filing import NamespaceSamples, by_namespace
from kubetide.hpa.observer import LABEL_INDEX, PodCache, pod_labels
from kubetide.kube.cache.store import Store
from unit.hpa.worlds import pod

A, B, C = ObjectKey("shop", "a"), ObjectKey("shop", "b"), ObjectKey("other", "c")


def claims(**selectors: str) -> Claims:
    table = Claims()
    for key in (A, B, C):
        table.register(key)
        if key.name in selectors:
            table.claim(key, parse_selector(selectors[key.name]))
    return table


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        pytest.param({"a": "app=web"}, ("shop/a",), id="alone"),
        pytest.param({"a": "app=web", "b": "app=web"}, ("shop/a", "shop/b"), id="same-selector"),
        pytest.param({"a": "app=web", "b": "!legacy"}, ("shop/a", "shop/b"), id="selector-without-a-label-pair"),
        pytest.param({"a": "app=web", "b": "app in (api,web)"}, ("shop/a", "shop/b"), id="one-of-several-values"),
        pytest.param({"a": "app=web", "b": "app=api"}, ("shop/a",), id="other-pods"),
        pytest.param({"a": "app=web", "c": "app=web"}, ("shop/a",), id="other-namespace"),
    ],
)
def test_all_who_claim_a_pod_are_found(selectors: dict[str, str], expected: tuple[str, ...]) -> None:
    assert claims(**selectors).claimants("shop", [pod("web-0"), pod("web-1")]) == expected


def test_without_pods_nothing_is_ambiguous() -> None:
    assert claims(a="app=web", b="app=web").claimants("shop", []) == ()


def test_a_forgotten_claim_is_gone_and_an_unknown_one_never_there() -> None:
    table = claims(a="app=web", b="app=web")
    table.forget(B)
    table.claim(B, parse_selector("app=web"))
    assert table.claimants("shop", [pod("web-0")]) == ("shop/a",)


def test_a_new_selector_replaces_the_old_one() -> None:
    table = claims(a="app=web", b="app=web")
    table.claim(B, parse_selector("app=api"))
    assert table.claimants("shop", [pod("web-0")]) == ("shop/a",)


def test_anchors_are_the_shortest_list_of_pairs() -> None:
    assert anchors(parse_selector("tier in (a,b),app=web,!x")) == (("app", "web"),)
    assert anchors(parse_selector("x,n>5")) == ()


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        pytest.param(["app=web", "app=api"], ["app in (api,web)"], id="one-label"),
        pytest.param(["app=web,tier=x", "app in (api,web)"], ["app in (api,web)"], id="more-is-asked-for-than-needed"),
        pytest.param(["app=web", "name=api"], ["app in (web)", "name in (api)"], id="two-labels"),
        pytest.param(["app=web", "!legacy"], None, id="one-may-match-anything"),
        pytest.param([f"l{n}=x" for n in range(MOST_LABELS + 1)], None, id="too-many-labels"),
        pytest.param([f"app=w{n}" for n in range(MOST_TEXT // 6)], None, id="too-long-for-a-url"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_few_pods_are_asked_for_by_the_labels_that_they_have(selectors: list[str], expected: list[str] | None) -> None:
    parsed = [parse_selector(text) for text in selectors]
    found = narrowed(parsed)
    if found is None or expected is None:
        assert (found, expected) == (None, None)
        return
    assert sorted(str(parse_selector(text)) for text in found) == [str(parse_selector(text)) for text in expected]
    # Each stands for those whose pods it matches, and every one is stood for.
    assert set().union(*found.values()) == set(parsed)
    for text, stands_for in found.items():
        for selector in stands_for:
            for label, value in anchors(selector):
                assert parse_selector(text).matches({label: value, "tier": "x"})


def sample(name: str, labels: dict[str, str] | None = None, namespace: str = "shop") -> PodMetrics:
    raw: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace}}
    if labels:
        raw["metadata"]["labels"] = labels
    return convert(raw, PodMetrics)


WEB = {"app": "web", "tier": "a"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("app=web", ["w-2", "plain", "w-1"], id="by-label-else-by-name-in-order"),
        pytest.param("app=api", ["api", "plain"], id="another-target"),
        pytest.param("tier", ["w-2", "plain", "w-1"], id="selector-without-pairs"),
        pytest.param("app in (web,api)", ["w-2", "api", "plain", "w-1"], id="several-values"),
    ],
)
def test_samples_are_selected_as_the_server_would(selector: str, expected: list[str]) -> None:
    items = [sample("w-2", WEB), sample("api", {"app": "api"}), sample("plain"), sample("w-1", WEB), sample("x")]
    found = NamespaceSamples(items).select(parse_selector(selector), ["plain", "gone"])
    assert [item.metadata.name for item in found] == expected


def test_a_sample_whose_labels_do_not_match_is_left_out_whatever_its_name() -> None:
    found = NamespaceSamples([sample("web-0", {"app": "old"})]).select(parse_selector("app=web"), ["web-0"])
    assert found == []


def test_a_sample_with_a_flood_of_labels_is_still_found() -> None:
    flood = {f"k{number}": "v" for number in range(500)} | {"app": "web"}
    found = NamespaceSamples([sample("a", flood), sample("b", WEB)]).select(parse_selector("app=web"), [])
    assert [item.metadata.name for item in found] == ["a", "b"]


def test_a_list_of_the_cluster_is_split() -> None:
    split = by_namespace([sample("a"), sample("b", namespace="other"), sample("c")])
    assert {name: len(items) for name, items in split.items()} == {"shop": 2, "other": 1}


def test_pods_are_looked_up_again_once_something_changed() -> None:
    store: Store[Pod] = Store({LABEL_INDEX: pod_labels})
    cache = PodCache(store)
    first, second = pod("web-0"), pod("web-1")
    store.put(key_of(first), first)
    selector = parse_selector("app=web")
    found = cache.matching("shop", selector)
    assert [one.metadata.name for one in found] == ["web-0"]
    assert cache.matching("shop", selector) is found
    store.put(key_of(second), second)
    assert [one.metadata.name for one in cache.matching("shop", selector)] == ["web-0", "web-1"]
    store.remove(key_of(first))
    assert [one.metadata.name for one in cache.matching("shop", selector)] == ["web-1"]


def test_claims_on_the_same_list_of_pods_are_seen_to_change() -> None:
    table = claims(a="app=web")
    found = PodList([pod("web-0")])
    assert table.claimants_for(A, found) == ("shop/a",)
    table.claim(B, parse_selector("app in (web)"))
    assert table.claimants_for(A, found) == ("shop/a", "shop/b")
    table.forget(B)
    assert table.claimants_for(A, found) == ("shop/a",)
