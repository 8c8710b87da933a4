"""Recommendations within policies, LimitRanges and limits. The golden vectors cover the combinations."""

from typing import Any

import pytest

from kubetide.api.objects.core import LimitRangeItem
from kubetide.api.objects.vpa import PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity
from kubetide.vpa.core.capping import adjust, cap_to_policy, container_resources, refuse_invalid
from kubetide.vpa.core.limits import NamespaceLimits, effective_item, proportional_limit
from kubetide.vpa.core.policy import (
    ContainerAmounts,
    Recommended,
    amounts,
    container_policy,
    controlled_resources,
    controlled_values,
    texts,
)

NO_LIMITS = NamespaceLimits()


def policy(*entries: dict[str, Any]) -> PodResourcePolicy:
    return convert({"containerPolicies": list(entries)}, PodResourcePolicy)


def recommended(container: str = "app", **target: str) -> Recommended:
    given = amounts(dict(target))
    return Recommended(container=container, target=given, lower=dict(given), upper=dict(given), uncapped=dict(given))


def container(name: str = "app", requests: dict[str, Any] | None = None, limits: Any = None) -> ContainerAmounts:
    return ContainerAmounts(name=name, requests=amounts(requests), limits=amounts(limits))


def test_a_named_policy_beats_the_star_and_the_last_star_wins() -> None:
    given = policy(
        {"containerName": "*", "mode": "Off"},
        {"containerName": "app", "mode": "Auto"},
        {"containerName": "*", "controlledValues": "RequestsOnly"},
    )
    named = container_policy(given, "app")
    assert named is not None
    assert named.mode == "Auto"
    assert controlled_values(given, "app") == "RequestsAndLimits"
    assert controlled_values(given, "sidecar") == "RequestsOnly"
    assert container_policy(None, "app") is None


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param(None, ("cpu", "memory"), id="unset-is-both"),
        pytest.param([], (), id="empty-is-none"),
        pytest.param(["memory", "gold"], ("memory",), id="unknown-names-are-ignored"),
    ],
)
def test_controlled_resources(listed: list[str] | None, expected: tuple[str, ...]) -> None:
    entry = container_policy(policy({"containerName": "app", "controlledResources": listed}), "app")
    assert controlled_resources(entry) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param({"minAllowed": {"cpu": "300m"}}, "300m", id="raised"),
        pytest.param({"maxAllowed": {"cpu": "100m"}}, "100m", id="cut"),
        pytest.param({"minAllowed": {"cpu": "0"}, "maxAllowed": {"cpu": "0"}}, "200m", id="zero-is-no-bound"),
        pytest.param({"minAllowed": {"cpu": "4"}, "maxAllowed": {"cpu": "3"}}, "3", id="the-maximum-wins"),
    ],
)
def test_the_recommender_caps_by_policy(entry: dict[str, Any], expected: str) -> None:
    capped = cap_to_policy([recommended(cpu="200m")], policy({"containerName": "app", **entry}))[0]
    assert texts(capped.target) == {"cpu": expected}
    assert capped.uncapped == amounts({"cpu": "200m"})


def test_a_general_maximum_stands_in_for_a_missing_one() -> None:
    largest = amounts({"cpu": "150m", "memory": "1Gi"})
    assert texts(cap_to_policy([recommended(cpu="200m")], None, largest)[0].target) == {"cpu": "150m"}
    own = policy({"containerName": "*", "maxAllowed": {"cpu": "1"}})
    assert texts(cap_to_policy([recommended(cpu="200m")], own, largest)[0].target) == {"cpu": "200m"}


@pytest.mark.parametrize(
    ("limit", "request_now", "new", "default", "expected"),
    [
        pytest.param("2", "1", "3", "0", "6", id="keeps-the-proportion"),
        pytest.param("0", "1", "3", "0", None, id="no-limit-stays-no-limit"),
        pytest.param("0", "1", "3", "2", "6", id="the-default-counts-as-own"),
        pytest.param("2", "0", "3", "0", "3", id="no-request-is-equal-to-the-limit"),
        pytest.param("2", "2", "3", "0", "3", id="equal-stays-equal"),
        pytest.param("2", "1", "0", "0", None, id="nothing-recommended"),
        pytest.param("1m", "1", "1m", "0", "0", id="rounded-to-zero-is-a-limit"),
    ],
)
def test_limits_keep_their_proportion(
    limit: str, request_now: str, new: str, default: str, expected: str | None
) -> None:
    found = proportional_limit(
        "cpu",
        limit=parse_quantity(limit),
        request=parse_quantity(request_now),
        new_request=parse_quantity(new),
        default=parse_quantity(default),
    ).limit
    assert (None if found is None else str(found)) == expected


def test_the_strictest_limit_range_counts() -> None:
    items = [
        convert({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}, LimitRangeItem),
        convert({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "default": {}}, LimitRangeItem),
        convert({"type": "Pod", "max": {"cpu": "9"}}, LimitRangeItem),
    ]
    item = effective_item(items, "Container")
    assert item is not None
    assert texts(item.maximum or {}) == {"cpu": "1"}
    assert texts(item.minimum or {}) == {"cpu": "100m"}
    assert effective_item(items, "PersistentVolumeClaim") is None


def test_neither_recommendation_nor_policy_is_nothing() -> None:
    assert adjust(None, None, [container()], NO_LIMITS) is None
    empty = adjust(None, policy(), [container()], NO_LIMITS)
    assert empty is not None
    assert empty.recommendations == ()


def test_containers_that_the_pod_does_not_have_are_dropped() -> None:
    found = adjust([recommended("gone", cpu="1"), recommended(cpu="1")], None, [container()], NO_LIMITS)
    assert found is not None
    assert [one.container for one in found.recommendations] == ["app"]


def test_a_container_that_the_api_server_would_refuse_is_left_alone() -> None:
    own = container(requests={"cpu": "1"}, limits={"cpu": "1500m"})
    given = [recommended(cpu="2")]
    only = policy({"containerName": "app", "controlledValues": "RequestsOnly"})
    adjusted = adjust(given, only, [own], NO_LIMITS)
    new = container_resources(given, adjusted, only, [own], NO_LIMITS, mode="Recreate")[0]
    assert texts(new.requests) == {"cpu": "1500m"}
    assert refuse_invalid(new, own) == new
    too_much = container_resources(given, adjust(given, None, [own], NO_LIMITS), None, [own], NO_LIMITS, mode="Auto")[0]
    forced = container(requests={"memory": "2Gi"}, limits={"memory": "1Gi", "cpu": "1"})
    refused = refuse_invalid(too_much, forced)
    assert refused.requests == {}
    assert refused.refused == "memory"


def test_a_pod_limit_range_scales_all_containers_together() -> None:
    item = effective_item([convert({"type": "Pod", "max": {"cpu": "1"}}, LimitRangeItem)], "Pod")
    own = [
        container("a", requests={"cpu": "500m"}, limits={"cpu": "500m"}),
        container("b", requests={"cpu": "500m"}, limits={"cpu": "500m"}),
    ]
    found = adjust([recommended("a", cpu="3"), recommended("b", cpu="1")], None, own, NamespaceLimits(pod=item))
    assert found is not None
    assert [texts(one.target) for one in found.recommendations] == [{"cpu": "750m"}, {"cpu": "250m"}]


def test_a_container_without_recommendation_shares_in_the_pod_target_but_not_in_the_bounds() -> None:
    """It stands for itself by its requests, as a target; bounds it has none, so they add nothing to the sums."""
    item = effective_item([convert({"type": "Pod", "max": {"cpu": "1"}}, LimitRangeItem)], "Pod")
    own = [
        container("a", requests={"cpu": "500m"}, limits={"cpu": "500m"}),
        container("b", requests={"cpu": "1"}, limits={"cpu": "1"}),
    ]
    found = adjust([recommended("a", cpu="1")], None, own, NamespaceLimits(pod=item))
    assert found is not None
    a, b = found.recommendations
    assert (texts(a.target), texts(b.target)) == ({"cpu": "500m"}, {"cpu": "500m"})
    assert (texts(a.lower or {}), texts(a.upper or {})) == ({"cpu": "1"}, {"cpu": "1"})
    assert (b.lower, b.upper) == (None, None)


def test_bounds_are_scaled_alone_where_they_exceed_the_pod_limit_range() -> None:
    item = effective_item([convert({"type": "Pod", "max": {"cpu": "1"}}, LimitRangeItem)], "Pod")
    own = [
        container("a", requests={"cpu": "500m"}, limits={"cpu": "500m"}),
        container("b", requests={"cpu": "1"}, limits={"cpu": "1"}),
    ]
    found = adjust([recommended("a", cpu="4")], None, own, NamespaceLimits(pod=item))
    assert found is not None
    a, b = found.recommendations
    assert (texts(a.target), texts(b.target)) == ({"cpu": "800m"}, {"cpu": "200m"})
    assert (texts(a.lower or {}), texts(a.upper or {})) == ({"cpu": "1"}, {"cpu": "1"})
    assert (b.lower, b.upper) == (None, None)


def test_a_limit_range_changes_no_resource_but_cpu_and_memory() -> None:
    item = effective_item(
        [convert({"type": "Container", "min": {"cpu": "1", "example.com/gpu": "2"}}, LimitRangeItem)], "Container"
    )
    given = Recommended(container="app", target=amounts({"cpu": "10m", "example.com/gpu": "1"}))
    found = adjust([given], None, [container()], NamespaceLimits(container=item))
    assert found is not None
    assert texts(found.recommendations[0].target) == {"cpu": "1", "example.com/gpu": "1"}


def test_a_limit_beyond_64_bits_is_cut_and_reports_it() -> None:
    found = proportional_limit(
        "memory",
        limit=parse_quantity("8E"),
        request=parse_quantity("1"),
        new_request=parse_quantity("1Gi"),
        default=parse_quantity("0"),
    )
    assert str(found.limit) == "9223372036854775807"
    assert found.note == "memory: failed to keep limit to request ratio; capping limit to int64"


def pod_limits(**given: Any) -> NamespaceLimits:
    return NamespaceLimits(pod=effective_item([convert({"type": "Pod", **given}, LimitRangeItem)], "Pod"))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param({"max": {"cpu": "7"}}, ["1", "1"], id="as-much-as-is-allowed"),
        pytest.param({"max": {"cpu": "3500m"}}, ["500m", "500m"], id="the-maximum-is-about-limits"),
        pytest.param(
            {"min": {"cpu": "5"}, "max": {"cpu": "3500m"}}, ["2500m", "2500m"], id="minimum-above-all-requests"
        ),
        pytest.param({"min": {"cpu": "1"}, "max": {"cpu": "700m"}}, ["100m", "100m"], id="the-maximum-wins"),
    ],
)
def test_each_container_of_a_pod_counts_with_its_own_proportion(item: dict[str, Any], expected: list[str]) -> None:
    own = [
        container("a", requests={"cpu": "1"}, limits={"cpu": "2"}),
        container("b", requests={"cpu": "1"}, limits={"cpu": "5"}),
    ]
    found = adjust([recommended("a", cpu="1"), recommended("b", cpu="1")], None, own, pod_limits(**item))
    assert found is not None
    assert [texts(one.target)["cpu"] for one in found.recommendations] == expected


def test_nothing_scaled_for_a_pod_stays_nothing() -> None:
    own = [
        container("a", requests={"memory": "1Gi"}, limits={"memory": "1Gi"}),
        container("b", requests={"memory": "1Gi"}, limits={"memory": "1Gi"}),
    ]
    given = [recommended("a", memory="2Gi"), recommended("b", cpu="1")]
    found = adjust(given, None, own, pod_limits(max={"memory": "1Gi"}))
    assert found is not None
    assert [texts(one.target)["memory"] for one in found.recommendations] == ["1Gi", "0"]
